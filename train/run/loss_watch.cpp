#include "train/run/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ripstop {

void LossWatch::add(int64_t step, double loss, double gradient_norm, Tell tell) {
  if (std::isfinite(loss)) {
    look_for_jump(step, loss, tell);
    look_for_stall(step, loss, tell);
  }
  if (std::isfinite(gradient_norm) && gradient_norm > 0) look_for_growth(step, gradient_norm, tell);
}

void LossWatch::look_for_jump(int64_t step, double loss, Tell tell) {
  constexpr size_t kInARow = 3;
  double mean = 0, square = 0;
  for (const double each : window_) mean += each / kWindow;
  for (const double each : window_) square += (each - mean) * (each - mean) / kWindow;
  const double limit = mean + std::max(6 * std::sqrt(square), 0.2 * std::abs(mean));
  if (known_ >= kWindow && loss > limit && above_ < kWindow) {
    if (above_ == 0) jumped_at_ = step;
    if (++above_ == kInARow)
      tell(fmt::format("the loss jumped at step {}, from a mean of {:.4f} to {:.4f} at step {}", jumped_at_,
                       mean, loss, step));
    return;
  }
  if (above_ >= kWindow) known_ = 0;  // the loss stays at a new level
  above_ = 0;
  window_[known_++ % kWindow] = loss;
}

void LossWatch::look_for_stall(int64_t step, double loss, Tell tell) {
  constexpr size_t kFewest = 32, kEvery = 8;
  sum_ += loss;
  if (++summed_ < block_steps_) return;
  blocks_[full_blocks_++] = {sum_ / static_cast<double>(summed_), step};
  sum_ = 0, summed_ = 0;
  if (full_blocks_ == kBlocks) {
    for (size_t i = 0; i < kBlocks / 2; ++i)
      blocks_[i] = {(blocks_[2 * i].mean + blocks_[2 * i + 1].mean) / 2, blocks_[2 * i + 1].last_step};
    full_blocks_ = kBlocks / 2, block_steps_ *= 2;
  }
  if (full_blocks_ < kFewest || full_blocks_ % kEvery != 0) return;
  const size_t quarter = full_blocks_ / 4;
  const auto mean_of = [&](size_t number) {
    double mean = 0;
    for (size_t i = 0; i < quarter; ++i)
      mean += blocks_[number * quarter + i].mean / static_cast<double>(quarter);
    return mean;
  };
  const double second = mean_of(1), third = mean_of(2), fourth = mean_of(3);
  // Differences of neighbouring blocks measure the noise, because a slow rise or fall hardly adds to them.
  double squares = 0;
  for (size_t i = 2 * quarter + 1; i < 4 * quarter; ++i)
    squares += std::pow(blocks_[i].mean - blocks_[i - 1].mean, 2);
  const auto blocks = static_cast<double>(quarter);
  const double error = std::sqrt(squares / (2 * (2 * blocks - 1)) / blocks);
  const bool is_sure = error <= 0.002 * std::abs(second) || fourth - second > 4 * error;
  if (stalled_) {
    stalled_ = fourth >= stalled_loss_ - 0.01 * std::abs(stalled_loss_);
  } else if (fourth >= third && third >= second && is_sure) {
    stalled_ = true, stalled_loss_ = second;
    tell(
        fmt::format("the loss has not fallen since step {}: its means are {:.4f}, {:.4f} and {:.4f} up to "
                    "steps {}, {} and {}",
                    blocks_[quarter - 1].last_step, second, third, fourth, blocks_[2 * quarter - 1].last_step,
                    blocks_[3 * quarter - 1].last_step, step));
  }
}

void LossWatch::look_for_growth(int64_t step, double norm, Tell tell) {
  constexpr size_t kSteps = 64;
  constexpr int kInARow = 6;
  log_sum_ += std::log(norm);
  if (++norms_ < kSteps) return;
  const double mean = log_sum_ / kSteps;
  log_sum_ = 0, norms_ = 0;
  if (mean_at_ > 0 && mean > last_mean_) {
    if (++growth_ == 1) first_mean_ = last_mean_, grew_from_ = mean_at_;
    if (growth_ >= kInARow && mean - first_mean_ >= std::log(2) && !growth_told_) {
      growth_told_ = true;
      tell(fmt::format(
          "the gradient norm grows since step {}: from {:.3g} to {:.3g} at step {}, in means of {}",
          grew_from_, std::exp(first_mean_), std::exp(mean), step, kSteps));
    }
  } else {
    growth_ = 0, growth_told_ = false;
  }
  last_mean_ = mean, mean_at_ = step;
}

}  // namespace ripstop
