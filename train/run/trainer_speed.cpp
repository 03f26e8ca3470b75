// How fast a run is and who holds it up: the time to the first step, and slow ranks.
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
  const StepTimes times{.seconds = step_seconds_,
                        .in_collectives_seconds = mesh_.seconds_waited_in_all() - waited_before,
                        .for_save_seconds = save_alone_seconds_};
  const std::optional<SpeedWindow> window =
      speed_watch_.add(work_of_step(world_.communicator().rank(), times, flops));
  if (window && leads_) report_speed(*window);
}

void Trainer::report_speed(const SpeedWindow& window) {
  const HostsEvent event = hosts_event(window, mesh_.hosts(), state_.step);
  log(event);
  for (const std::string& text : speed_changes(window, mesh_.hosts())) warn(text);
}

}  // namespace ripstop
