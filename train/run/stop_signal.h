// StopSignal: SIGTERM, SIGINT and SIGUSR1 request a stop: a checkpoint, then exit code 75.
#pragma once

namespace ripstop {

/// Handles SIGTERM, SIGINT and SIGUSR1 while it lives: the first one is remembered as a stop request. A
/// SIGINT after that (a second Ctrl-C) ends the process at once, with code 75. At most one object at a time.
/// The destructor restores the default actions.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  /// Whether a stop was requested on this rank.
  bool requested() const;
};

}  // namespace ripstop
