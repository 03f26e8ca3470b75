// Watchdog: tells other ranks, beside MPI, what this rank is doing, so that an error can name a rank that is
// missing.
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

/// The state of a rank, as its watchdog tells it.
struct RankState {
  int64_t rank = 0;
  bool answers = false;
  bool inside = false;    ///< the rank waits in `operation` now; if false, `operation` was its last one
  int64_t step = -1;      ///< -1 before the first
  std::string operation;  ///< "all_gather on fsdp"

  /// "rank 3 (node07) is in all_gather on fsdp, step 12", "rank 3 (node07) does not answer".
  std::string describe(const std::string& host) const;
};

/// From where a watchdog can be reached.
enum class Reach {
  kHost,     ///< this host alone: the socket is bound to the loopback address
  kNetwork,  ///< other hosts too: it is bound to all addresses
};

/// A thread and a UDP socket of each rank, beside MPI and independent of it. The thread answers the watchdogs
/// of other ranks even while the main thread computes or hangs; only a process that is gone, stopped or cut
/// off does not answer. It ends this process
/// - with the announced exit code, `seconds_to_end` after another rank announced that it failed,
/// - with exit code 76 if the launcher is gone, so that no orphans stay, and
/// - by `hung` if a call that guard() begins does not return in time: one of MPI's, which has no deadline.
/// The main thread alone calls the members, and `hung` in its place.
class Watchdog {
 public:
  /// Called on a thread of its own if the main thread hangs in `operation` for `seconds`. It should end the
  /// process. If it has not after kSecondsToTell, the watchdog does, with 76.
  using Hung = std::function<void(const std::string& operation, double seconds)>;
  static constexpr double kSecondsToTell = 9;

  /// `seconds_to_end`: the time between hearing of a failure and ending. Opens nothing.
  explicit Watchdog(double seconds_to_end);
  /// Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Starts the thread. Call it before MPI starts. `several`: the launcher started other processes too, so
  /// this one ends if the launcher is gone.
  void start(bool several, Hung hung);

  /// From now until unguard() the main thread is inside `operation`, which must not take more than `seconds`.
  /// Time in which this process was stopped does not count.
  void guard(const std::string& operation, double seconds);
  void unguard();

  /// Opens the socket. If a site allows no sockets, this rank cannot be asked, and the run goes on without.
  /// Throws Error(kResources) if the process may open no more files.
  void open(Reach reach);
  /// The address of the open socket. The host is known before.
  const WatchdogAddress& address() const { return address_; }
  /// Makes the other ranks known: the thread answers their questions from then on. `addresses` are those of
  /// all ranks, by rank; `run` is a number that only the ranks of this world know.
  void connect(int64_t rank, const std::vector<WatchdogAddress>& addresses, uint64_t run);

  /// Set what this rank answers. Cheap; "operation on axis" is cut at 63 characters.
  void set_step(int64_t step);
  int64_t step() const;
  void begin_operation(std::string_view operation, std::string_view axis);
  void end_operation();

  /// Asks `ranks` for their states and returns them in the same order, when all have answered or after
  /// `seconds`.
  std::vector<RankState> ask(const std::vector<int64_t>& ranks, double seconds);

  /// Tells all ranks to end with `code`. They do so after their `seconds_to_end`, without a message. Returns
  /// when all have confirmed or after `seconds`, which should be less than that.
  void announce_failure(ExitCode code, double seconds);
  /// Whether another rank announced a failure: this process is about to end.
  bool failure_announced() const;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kMagic = 0x52697073;
  static constexpr size_t kTextBytes = 64;

  enum class Kind : uint32_t { kQuestion, kAnswer, kFailure, kConfirmed };

  /// One datagram. All ranks run the same binary on the same kind of machine (checked at start-up), so the
  /// struct travels as it lies in memory.
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
  int wake_ = -1;  ///< written if the thread has something new to look at
  Hung hung_;
  bool several_ = false;
  std::thread thread_;
  std::atomic<bool> ends_{false};
  std::atomic<int> failure_{0};       ///< the exit code that another rank announced; 0: none did
  std::atomic<bool> failing_{false};  ///< this rank announced a failure itself
  Clock::time_point failed_at_;       ///< of the thread: when failure_ was set
  Clock::time_point looked_at_;       ///< of the thread: when it last looked at the guard
  Clock::time_point hung_at_;         ///< of the thread: when it called hung_
  bool tells_ = false;                ///< of the thread: it has called hung_

  mutable std::mutex mutex_;  ///< guards all members below
  std::string guarded_;       ///< the operation; empty: none
  double guard_seconds_ = 0;
  double guarded_for_ = 0;
  int64_t rank_ = -1;
  std::vector<std::vector<sockaddr_in>> peers_;
  Message own_;                     ///< the answer to a question
  std::vector<RankState> answers_;  ///< to the question under way, by rank
  std::vector<bool> confirmed_;     ///< of the failure under way, by rank
};

}  // namespace ripstop
