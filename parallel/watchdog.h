// Watchdog: what this rank is doing, told to other ranks out of band, so that a missing one can be named.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

/// Where a rank's watchdog can be reached, as one line of text to be exchanged at start-up.
struct WatchdogAddress {
  std::string host;
  std::vector<std::string> ip;  ///< IPv4 addresses of the host, loopback last
  int port = 0;                 ///< 0: cannot be reached

  std::string to_text() const;
  /// Throws Error(kCommunication) where the text is no address.
  static WatchdogAddress from_text(const std::string& text);
};

/// What a rank says of itself when asked.
struct RankState {
  int64_t rank = 0;
  bool answers = false;
  bool inside = false;    ///< waits in `operation` now; else it was the last one
  int64_t step = -1;      ///< -1 before the first
  std::string operation;  ///< "all_gather on fsdp"

  /// "rank 3 (node07) is in all_gather on fsdp, step 12", "rank 3 (node07) does not answer".
  std::string describe(const std::string& host) const;
};

/// A thread and a UDP socket of each rank, beside MPI and independent of it. It answers the watchdogs of
/// other ranks even while the main thread computes or hangs; only a process that is gone, stopped or cut off
/// does not answer. It ends this process
/// - with the announced code, a moment after another rank announced that it failed, and
/// - with 76, when the launcher is gone: no orphans.
/// Main thread and watchdog share only what is below; all members are called from the main thread.
class Watchdog {
 public:
  /// Opens the socket. Where a site allows none, this rank cannot be asked, and a run goes on without.
  /// `seconds_to_end`: between hearing of a failure and ending.
  explicit Watchdog(double seconds_to_end);
  /// Ends the thread.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  const WatchdogAddress& address() const;
  /// Makes the others known and starts the thread; from then on questions are answered. `addresses` are those
  /// of all ranks, by rank; `run` is a number that only ranks of this world know.
  void connect(int64_t rank, std::vector<WatchdogAddress> addresses, uint64_t run);

  /// What to answer when asked. Cheap; texts are cut at 64 characters.
  void set_step(int64_t step);
  int64_t step() const;
  void begin_operation(std::string_view operation, std::string_view axis);
  void end_operation();

  /// Asks `ranks` what they do and returns their states in the same order, after `seconds` or once all have
  /// answered.
  std::vector<RankState> ask(const std::vector<int64_t>& ranks, double seconds);

  /// Tells all ranks to end with `code`; they do after `seconds_to_end`, without a word. Returns once all
  /// have confirmed or `seconds` have passed, which should be fewer.
  void announce_failure(ExitCode code, double seconds);
  /// Whether another rank announced a failure: this process is about to end.
  bool failure_announced() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
