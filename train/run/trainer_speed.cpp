// How fast a run is and who holds it up: the time to the first step, and slow ranks.
#include <algorithm>

#include "train/run/trainer.h"

namespace ripstop {

// Where the time went up to the end of this start's first step.
std::optional<StartupSeconds> Trainer::startup_of_step() const {
  if (state_.step != first_step_ + 1) return std::nullopt;
  StartTimes times = options_.start_times;
  times.enter(&StartupSeconds::other);
  StartupSeconds seconds = times.seconds();
  seconds.other -= step_seconds_;
  seconds.first_step = step_seconds_;
  return seconds;
}

// Looks for slow ranks, in the steps behind the first of a start.
void Trainer::watch_speed(double waited_before, double flops) {
  if (state_.step == first_step_ + 1) return;
  // A wait for the slowest rank hides it: all ranks' steps take as long. So take the waits off, and those for
  // a save, or the rank that saves most would look slow.
  const double waited = mesh_.seconds_waited_in_all() - waited_before;
  const std::optional<SpeedWindow> window =
      speed_watch_.add({.rank = static_cast<double>(world_.communicator().rank()),
                        .compute_seconds = std::max(step_seconds_ - waited - save_alone_seconds_, 0.0),
                        .wait_seconds = waited,
                        .flops = flops});
  if (window && leads_) report_speed(*window);
}

void Trainer::report_speed(const SpeedWindow& window) {
  const HostsEvent event = hosts_event(window, mesh_.hosts(), state_.step);
  log(event);
  for (const std::string& text : speed_changes(window, mesh_.hosts())) warn(text);
}

}  // namespace ripstop
