#include "train/run/speed_watch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "parallel/agreement.h"
#include "train/machine/slow_ranks.h"

namespace ripstop {
RankWork work_of_step(int64_t rank, const StepTimes& times, const StageFlops& flops) {
  const double waited = times.in_collectives_seconds + times.for_save_seconds;
  return {.rank = static_cast<double>(rank),
          .compute_seconds = std::max(times.seconds - waited, 0.0),
          .wait_seconds = times.in_collectives_seconds,
          .flops = flops.own,
          .share = flops.all > 0 ? flops.own / flops.all : 1};
}

StageFlops batch_flops(const ModelConfig& model, const PackedBatch& batch, std::span<const Stage> stages) {
  const auto real = [](int64_t number) { return static_cast<double>(number); };
  const double hidden = real(model.hidden_size);
  const double queries = real(model.query_size()), key_values = real(model.key_value_size());
  const double row = 2 * hidden * (2 * queries + 2 * key_values + 3 * real(model.intermediate_size));
  double attention = 0;
  for (size_t d = 0; d + 1 < batch.document_offset.size(); ++d) {
    const double rows = batch.document_offset[d + 1] - batch.document_offset[d];
    attention += 2 * queries * rows * rows;
  }
  const double head = 2 * real(model.vocab_size) * hidden * real(batch.target_count);
  const double layer = 3 * (real(batch.rows()) * row + attention);
  StageFlops flops{.all = real(model.num_hidden_layers) * layer + 3 * head};
  for (const Stage& stage : stages) flops.own += real(stage.layers) * layer + (stage.is_last ? 3 * head : 0);
  return flops;
}

std::vector<double> relative_speeds(std::span<const RankWork> window) {
  std::vector<double> by_work, by_time;
  for (const RankWork& rank : window) {
    const bool known = rank.compute_seconds > 0 && rank.flops > 0;
    by_work.push_back(known ? rank.flops / rank.compute_seconds : 0);
    by_time.push_back(known ? rank.share / rank.compute_seconds : 0);
  }
  std::vector<double> speeds = relative_to_median(by_work);
  const std::vector<double> in_time = relative_to_median(by_time);
  for (size_t r = 0; r < speeds.size(); ++r) speeds[r] = std::max(speeds[r], in_time[r]);
  return speeds;
}

void SlowWindows::add(const std::vector<double>& speeds) {
  in_a_row_.resize(speeds.size(), 0);
  slow_.resize(speeds.size(), false);
  for (size_t r = 0; r < speeds.size(); ++r) {
    const bool is_slow = speeds[r] < kSlowShare;
    in_a_row_[r] = is_slow == slow_[r] ? 0 : in_a_row_[r] + 1;
    if (in_a_row_[r] < kWindows) continue;
    slow_[r] = is_slow;
    in_a_row_[r] = 0;
  }
}

std::optional<SpeedWindow> SpeedWatch::add(const RankWork& step) {
  if (world_.size() == 1) return std::nullopt;
  sum_.compute_seconds += step.compute_seconds;
  sum_.wait_seconds += step.wait_seconds;
  sum_.flops += step.flops;
  sum_.share += step.share;
  if (++steps_ < window_steps_) return std::nullopt;
  const auto count = static_cast<double>(steps_);
  const RankWork own{step.rank, sum_.compute_seconds / count, sum_.wait_seconds / count, sum_.flops / count,
                     sum_.share / count};
  SpeedWindow window{.steps = steps_, .ranks = {}, .speeds = {}, .slow = {}, .was_slow = windows_.slow()};
  window.ranks = of_all_ranks(world_, own);
  window.speeds = relative_speeds(window.ranks);
  windows_.add(window.speeds);
  window.slow = windows_.slow();
  window.was_slow.resize(window.slow.size(), false);
  // All ranks use the first rank's numbers, so that the next window ends after the same step on all ranks.
  const double a_step = window.ranks.front().compute_seconds + window.ranks.front().wait_seconds;
  const double steps = std::ceil(kWindowSeconds / std::max(a_step, 1e-6));
  window_steps_ = std::clamp(static_cast<int64_t>(steps), kSteps, kMostSteps);
  sum_ = {.share = 0};
  steps_ = 0;
  return window;
}

}  // namespace ripstop
