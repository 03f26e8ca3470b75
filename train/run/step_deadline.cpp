#include "train/run/step_deadline.h"

#include <algorithm>
#include <cstddef>
#include <functional>

namespace ripstop {

void StepDeadline::learn(double seconds) {
  if (std::ssize(seconds_) < kSteps)
    seconds_.push_back(seconds);
  else
    seconds_[static_cast<size_t>(learned_ % kSteps)] = seconds;
  ++learned_;
}

double StepDeadline::in_step() const {
  if (given_ || learned_ < kFirstSteps) return outside_steps();
  std::vector<double> seconds = seconds_;
  std::nth_element(seconds.begin(), seconds.begin() + 1, seconds.end(), std::greater<>());
  return std::max(kLeastSeconds, kTimesStep * seconds[1]);
}

double StepDeadline::outside_steps() const {
  return given_ ? static_cast<double>(*given_) : kUnlearnedSeconds;
}

}  // namespace ripstop
