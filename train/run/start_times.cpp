#include "train/run/start_times.h"

#include <fmt/format.h>

#include "train/machine/machine.h"

namespace ripstop {

StartTimes::StartTimes() {
  seconds_.program = process_age_seconds();
}

void StartTimes::enter(Part part) {
  const Clock::time_point now = Clock::now();
  seconds_.*part_ += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  part_ = part;
}

StartupSeconds StartTimes::seconds() const {
  StartTimes now = *this;
  now.enter(part_);
  StartupSeconds& s = now.seconds_;
  s.total = s.program + s.mpi + s.data + s.memory + s.weights + s.resume + s.other + s.first_step.value_or(0);
  return s;
}

std::string startup_text(const StartupSeconds& s) {
  return fmt::format(
      "started in {:.2f} s: program {:.2f}, MPI {:.2f}, data {:.2f}, memory {:.2f}, weights {:.2f}, resume "
      "{:.2f}, other {:.2f}",
      s.total, s.program, s.mpi, s.data, s.memory, s.weights, s.resume, s.other);
}

}  // namespace ripstop
