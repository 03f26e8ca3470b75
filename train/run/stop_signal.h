// StopSignal: turns the signals that end a process into a stop request.
#pragma once

namespace ripstop {

/// What the process does after a stop request. Decides which signals are handled.
enum class StopFor {
  kCheckpoint,  ///< SIGTERM, SIGINT, SIGUSR1; a second Ctrl-C ends the process at once, with code 75
  kCleanUp,     ///< SIGTERM, SIGINT, SIGHUP; a second Ctrl-C ends it at once, as SIGINT does by default
};

/// Handles the signals of `purpose` while it lives: the first one is remembered as a stop request. A SIGINT
/// after that (a second Ctrl-C) ends the process at once; other repetitions are ignored. At most one object
/// at a time.
class StopSignal {
 public:
  explicit StopSignal(StopFor purpose);
  /// Restores the default actions.
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether a stop was requested on this rank.
  bool requested() const;
  /// Ends the process by the signal that came first, so that the shell sees that it was killed by it. Call it
  /// after the clean-up. Returns only if no signal has come.
  void end_process() const;
};

}  // namespace ripstop
