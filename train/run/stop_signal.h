// StopSignal: SIGTERM and SIGUSR1 ask for a checkpoint and an end.
#pragma once

namespace ripstop {

/// While it lives, a SIGTERM, SIGINT or SIGUSR1 is remembered, and a SIGINT after one (a second Ctrl-C) ends
/// the process at once. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool requested() const;
};

}  // namespace ripstop
