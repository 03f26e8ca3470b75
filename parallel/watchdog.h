#pragma once
#include <netinet/in.h>
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "model/core/error.h"
#include "model/core/function_ref.h"

namespace ripstop {

/// Address of a rank's watchdog. Ranks exchange it at start-up as one line of text.
struct WatchdogAddress {
  std::string host;
  std::vector<std::string> ip;  ///< IPv4 addresses of the host, loopback last
  int port = 0;                 ///< UDP port; 0 if the watchdog cannot be reached

  std::string to_text() const;
  /// Throws Error(kCommunication) if `text` is not an address.
  static WatchdogAddress from_text(const std::string& text);
};

/// Where a rank is in its run. Stage and micro-batch are -1 without a pipeline and outside of micro-batches.
struct StepPlace {
  int64_t step = -1;  ///< -1 before the first step
  int64_t stage = -1, micro_batch = -1;

  /// "step 120, stage 2, micro-batch 7", "step 120" or "step -".
  std::string to_text() const;
};

struct RankState {
  int64_t rank = 0;
  bool answers = false;
  bool inside = false;  ///< true: the rank waits in `operation` now; false: `operation` was its last one
  bool waits_for_storage = false;  ///< the main thread waits for a file system
  StepPlace place = {};
  std::string operation;  ///< such as "all_gather on fsdp"; "" before the first

  /// Returns a text like "rank 3 (node07) is in all_gather on fsdp, step 12".
  std::string describe(const std::string& host) const;
};

/// The hosts from which a watchdog can be reached.
enum class Reach {
  kHost,     ///< this host: the socket is bound to the loopback address
  kNetwork,  ///< other hosts too: the socket is bound to all addresses
};

/// A thread and a UDP socket of each rank, independent of MPI. The thread answers other ranks even while the
/// main thread computes or hangs, so that an error can name a rank that is gone, stopped or cut off. The
/// thread ends this process
/// - with the announced exit code, `seconds_to_end` after another rank announced a failure,
/// - with exit code 76 if the launcher is gone, so that no orphans stay, and
/// - through `hung` if a guarded call (of MPI, which has no deadline) does not return in time.
/// Only the main thread may call the members; while the main thread hangs, `hung` may call them.
class Watchdog {
 public:
  /// Called on a thread of its own if the main thread hangs in `operation` for `seconds`. It should end the
  /// process. If the process lives after kSecondsToTell, the watchdog ends it with exit code 76.
  using Hung = std::function<void(const std::string& operation, double seconds)>;
  static constexpr double kSecondsToTell = 9;

  /// Opens no socket and starts no thread.
  explicit Watchdog(double seconds_to_end);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts the thread. Call it before MPI starts. If `several`, the launch has several processes, and this
  /// process ends when the launcher is gone. Throws Error(kResources) if the system gives no eventfd.
  void start(bool several, Hung hung);

  /// Guards `operation` of the main thread until unguard(): if it takes more than `seconds`, the watchdog
  /// calls `hung`. Time in which this process was suspended does not count.
  void guard(const std::string& operation, double seconds);
  void unguard();

  /// Opens the socket. If the system forbids sockets, other ranks cannot ask this rank; the run continues.
  void open(Reach reach);
  /// Address of the open socket. The host is known before open().
  const WatchdogAddress& address() const { return address_; }
  /// Lets the thread answer the ranks at `addresses`, indexed by rank. `run` is a number that only the ranks
  /// of this world know.
  void connect(int64_t rank, const std::vector<WatchdogAddress>& addresses, uint64_t run);

  /// Functions that set this rank's answer to questions. Cheap; "operation on axis" is cut at 63 characters.
  void set_place(const StepPlace& place);
  StepPlace place() const;
  void begin_operation(std::string_view operation, std::string_view axis);
  void end_operation();
  /// Sets whether this rank waits for storage. The answer also says so while the main thread is in a system
  /// call that no signal interrupts, such as a call of a file system that does not answer.
  void set_waits_for_storage(bool waits);

  /// Returns the states of `ranks`, in that order, once all have answered or after `seconds`.
  std::vector<RankState> ask(const std::vector<int64_t>& ranks, double seconds);

  /// Tells all other ranks that have announced no failure to end silently with exit code `code` after
  /// `seconds_to_end`. Returns when all have confirmed, or after `seconds`, which should be less.
  void announce_failure(ExitCode code, double seconds);
  /// Whether another rank announced a failure; if so, this process is about to end.
  bool failure_announced() const { return failure_.load() != 0; }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kMagic = 0x52697073;
  static constexpr size_t kTextBytes = 64;

  enum class Kind : uint32_t { kQuestion, kAnswer, kFailure, kConfirmed };

  /// A datagram, sent as it lies in memory: all ranks run the same program.
  struct Message {
    uint32_t magic = kMagic;
    Kind kind = Kind::kQuestion;
    uint64_t run = 0;
    int64_t from = 0;
    StepPlace place = {};
    int32_t code = 0;
    int32_t inside = 0;
    int64_t waits_for_storage = 0;
    char operation[kTextBytes] = {};
  };

  // Called on thread_ alone.
  void listen();
  void receive();
  void look_at_guard();
  void take(const Message& message, const sockaddr_in& from);
  void end_if_due();
  // Called on the main thread and on that of hung_.
  void wake();
  void send(Message message, int64_t to);
  void repeat(const Message& message, const std::vector<int64_t>& ranks, double seconds,
              std::chrono::milliseconds pause, FunctionRef<bool(size_t rank)> replied);

  const double seconds_to_end_;
  const pid_t parent_;
  WatchdogAddress address_;
  std::atomic<int> socket_{-1};
  int wake_ = -1;  ///< an eventfd that wakes the thread
  Hung hung_;
  bool several_ = false;
  std::thread thread_;
  std::atomic<bool> ends_{false};
  std::atomic<int> failure_{0};       ///< exit code that another rank announced, or 0
  std::atomic<bool> failing_{false};  ///< this rank itself has announced a failure
  // Used only by the thread:
  Clock::time_point failed_at_;
  Clock::time_point looked_at_;
  Clock::time_point hung_at_;
  bool tells_ = false;  ///< the thread has called hung_

  mutable std::mutex mutex_;  ///< guards all members below
  std::string guarded_;       ///< the guarded operation, or ""
  double guard_seconds_ = 0;
  double guarded_for_ = 0;
  int64_t rank_ = -1;
  std::vector<std::vector<sockaddr_in>> peers_;
  Message own_;                     ///< this rank's answer to questions
  std::vector<RankState> answers_;  ///< answers to the question under way, indexed by rank
  std::vector<bool> confirmed_;     ///< ranks that confirmed this rank's announcement, indexed by rank
};

}  // namespace ripstop
