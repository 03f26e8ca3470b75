// Watchdog: tells other ranks the state of this rank beside MPI, so that an error can name a missing rank.
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

/// The address of a rank's watchdog. Ranks exchange it at start-up as one line of text.
struct WatchdogAddress {
  std::string host;
  std::vector<std::string> ip;  ///< IPv4 addresses of the host, loopback last
  int port = 0;                 ///< 0: the watchdog cannot be reached

  std::string to_text() const;
  /// Throws Error(kCommunication) if the text is no address.
  static WatchdogAddress from_text(const std::string& text);
};

/// The answer of a rank's watchdog.
struct RankState {
  int64_t rank = 0;
  bool answers = false;
  bool inside = false;    ///< whether the rank waits in `operation` now, else `operation` was its last wait
  int64_t step = -1;      ///< -1 before the first
  std::string operation;  ///< "all_gather on fsdp"

  /// "rank 3 (node07) is in all_gather on fsdp, step 12", "rank 3 (node07) does not answer".
  std::string describe(const std::string& host) const;
};

/// The hosts from which a watchdog can be reached.
enum class Reach {
  kHost,     ///< this host: the socket is bound to the loopback address
  kNetwork,  ///< other hosts too: the socket is bound to all addresses
};

/// A thread and a UDP socket of each rank, independent of MPI. The thread answers the watchdogs of other
/// ranks even while the main thread computes or hangs: a rank that does not answer is gone, stopped or cut
/// off. The thread ends this process
/// - with the announced exit code, `seconds_to_end` after another rank announced a failure,
/// - with exit code 76 if the launcher is gone, so that no orphans stay, and
/// - through `hung` if a guarded call (of MPI, which has no deadline) does not return in time.
/// Only the main thread calls the members, or `hung` while the main thread hangs.
class Watchdog {
 public:
  /// Called on a thread of its own if the main thread hangs in `operation` for `seconds`. Should end the
  /// process; after kSecondsToTell the watchdog does so, with 76.
  using Hung = std::function<void(const std::string& operation, double seconds)>;
  static constexpr double kSecondsToTell = 9;

  /// `seconds_to_end`: the time between hearing of a failure and ending. Opens no socket, starts no thread.
  explicit Watchdog(double seconds_to_end);
  /// Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts the thread. Call it before MPI starts. `several`: the launch has several processes, so this one
  /// ends if the launcher is gone. Throws Error(kResources) if the process may open no more files.
  void start(bool several, Hung hung);

  /// Begins to guard `operation` of the main thread, until unguard(): it must not take more than `seconds`.
  /// Time in which this process was stopped does not count.
  void guard(const std::string& operation, double seconds);
  void unguard();

  /// Opens the socket. Without permission for sockets this rank cannot be asked, and the run goes on.
  void open(Reach reach);
  /// The address of the open socket. address().host is known before open().
  const WatchdogAddress& address() const { return address_; }
  /// Tells the watchdog the addresses of all ranks, by rank, and `run`, a number that only this world's ranks
  /// know. From then on the thread answers their questions.
  void connect(int64_t rank, const std::vector<WatchdogAddress>& addresses, uint64_t run);

  /// Set the answer of this rank. Cheap; "operation on axis" is cut at 63 characters.
  void set_step(int64_t step);
  int64_t step() const;
  void begin_operation(std::string_view operation, std::string_view axis);
  void end_operation();

  /// Returns the states of `ranks`, in their order, once all have answered or after `seconds`.
  std::vector<RankState> ask(const std::vector<int64_t>& ranks, double seconds);

  /// Tells all ranks to end with `code`: silently, after their `seconds_to_end`. Returns once all have
  /// confirmed or after `seconds`, which should be less than `seconds_to_end`.
  void announce_failure(ExitCode code, double seconds);
  /// Whether another rank announced a failure, so that this process is about to end.
  bool failure_announced() const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kMagic = 0x52697073;
  static constexpr size_t kTextBytes = 64;

  enum class Kind : uint32_t { kQuestion, kAnswer, kFailure, kConfirmed };

  /// A datagram. The struct is sent as it lies in memory: all ranks run the same binary on the same kind of
  /// machine (checked at start-up).
  struct Message {
    uint32_t magic = kMagic;
    Kind kind = Kind::kQuestion;
    uint64_t run = 0;
    int64_t from = 0;
    int64_t step = -1;
    int32_t code = 0;
    int32_t inside = 0;
    char operation[kTextBytes] = {};
  };

  // Called on the thread.
  void listen();
  void receive();
  void look_at_guard();
  void take(const Message& message, const sockaddr_in& from);
  void end_if_due();
  // Called on both threads.
  void wake();
  void send(Message message, int64_t to);
  void repeat(const Message& message, const std::vector<int64_t>& ranks, double seconds,
              std::chrono::milliseconds pause, FunctionRef<bool(size_t rank)> replied);

  const double seconds_to_end_;
  const pid_t parent_;
  WatchdogAddress address_;
  std::atomic<int> socket_{-1};
  int wake_ = -1;  ///< an eventfd that ends the thread's sleep
  Hung hung_;
  bool several_ = false;
  std::thread thread_;
  std::atomic<bool> ends_{false};
  std::atomic<int> failure_{0};       ///< the exit code that another rank announced, or 0
  std::atomic<bool> failing_{false};  ///< this rank announced a failure itself
  // Only the thread uses these four:
  Clock::time_point failed_at_;  ///< when failure_ was set
  Clock::time_point looked_at_;  ///< when the thread last looked at the guard
  Clock::time_point hung_at_;    ///< when the thread called hung_
  bool tells_ = false;           ///< the thread has called hung_

  mutable std::mutex mutex_;  ///< guards all members below
  std::string guarded_;       ///< the guarded operation, or ""
  double guard_seconds_ = 0;
  double guarded_for_ = 0;
  int64_t rank_ = -1;
  std::vector<std::vector<sockaddr_in>> peers_;
  Message own_;                     ///< the answer to a question
  std::vector<RankState> answers_;  ///< answers to the question under way, by rank
  std::vector<bool> confirmed_;     ///< whether a rank has confirmed our failure, by rank
};

}  // namespace ripstop
