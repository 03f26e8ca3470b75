#include "train/evaluate/bootstrap.h"

#include <algorithm>

#include "model/core/philox.h"

namespace ripstop {
namespace {

double percentile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

ScoreRow mean_of_draws(const std::vector<ScoreRow>& rows, uint32_t resample, uint64_t seed) {
  ScoreRow sum{};
  PhiloxBlock words{};
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i % words.size() == 0)
      words = philox({static_cast<uint32_t>(i / words.size()), resample, 0, 0}, seed);
    const ScoreRow& drawn = rows[uint64_t{words[i % words.size()]} * rows.size() >> 32];
    for (size_t column = 0; column < sum.size(); ++column) sum[column] += drawn[column];
  }
  for (double& column : sum) column /= static_cast<double>(rows.size());
  return sum;
}

}  // namespace

ScoreRow fmeasures(const RougeScores& scores) {
  return {scores.rouge1.fmeasure, scores.rouge2.fmeasure, scores.rouge_l.fmeasure};
}

std::array<Interval, 3> bootstrap_intervals(const std::vector<ScoreRow>& rows, int64_t resamples,
                                            uint64_t seed) {
  std::array<std::vector<double>, 3> means;
  for (int64_t resample = 0; resample < resamples; ++resample) {
    const ScoreRow mean = mean_of_draws(rows, static_cast<uint32_t>(resample), seed);
    for (size_t column = 0; column < mean.size(); ++column) means[column].push_back(mean[column]);
  }
  std::array<Interval, 3> intervals;
  for (size_t column = 0; column < means.size(); ++column) {
    std::ranges::sort(means[column]);
    intervals[column] = {percentile(means[column], 0.025), percentile(means[column], 0.975)};
  }
  return intervals;
}

}  // namespace ripstop
