#include "parallel/stage_split.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "model/core/error.h"
#include "model/core/rounding.h"

namespace ripstop {
namespace {

int64_t sum_of(const std::vector<int64_t>& layers) {
  return std::accumulate(layers.begin(), layers.end(), int64_t{0});
}

}  // namespace

std::vector<Stage> StageSplit::of_rank(int64_t rank) const {
  std::vector<Stage> stages;
  int64_t first = 0;
  const auto count = static_cast<int64_t>(layers.size());
  for (int64_t s = 0; s < count; ++s) {
    const int64_t own = layers[static_cast<size_t>(s)];
    if (s % ranks == rank) stages.push_back({s, first, own, s == 0, s == count - 1});
    first += own;
  }
  return stages;
}

std::vector<int64_t> StageSplit::ranks_with(size_t unit) const {
  const int64_t last = ranks - 1, all = sum_of(layers), number = static_cast<int64_t>(unit);
  if (number == 0) return tied && last > 0 ? std::vector<int64_t>{0, last} : std::vector<int64_t>{0};
  if (number == all + 1 && !tied) return {last};
  const int64_t model_units = all + (tied ? 1 : 2);
  int64_t layer = number < model_units ? number - 1 : number - model_units;
  RIPSTOP_CHECK(layer < all, "unit {} of {} layers", unit, all);
  int64_t stage = 0;
  while (layer >= layers[static_cast<size_t>(stage)]) layer -= layers[static_cast<size_t>(stage++)];
  return {stage % ranks};
}

std::vector<size_t> StageSplit::units_of_rank(int64_t rank, size_t units) const {
  std::vector<size_t> held;
  for (size_t unit = 0; unit < units; ++unit)
    if (std::ranges::count(ranks_with(unit), rank) > 0) held.push_back(unit);
  return held;
}

std::vector<UnitSpec> StageSplit::staged(std::vector<UnitSpec> table) const {
  for (size_t unit = 0; unit < table.size(); ++unit) table[unit].stage = ranks_with(unit).front();
  return table;
}

StageSplit split_stages(const ModelConfig& config, int64_t sequence_length, double target_share,
                        int64_t ranks, int64_t stages_per_rank) {
  const int64_t all = config.num_hidden_layers, stages = ranks * stages_per_rank, before = stages - 1;
  StageSplit split{.layers = {all}, .ranks = ranks, .tied = config.tie_word_embeddings};
  if (before == 0) return split;
  if (before > all)
    throw Error(ExitCode::kResources,
                fmt::format("mesh.pipeline {} makes {} stages, the model has {} layers", ranks, stages, all),
                fmt::format("sizes of mesh.pipeline that fit: 1 to {}; only the last stage may have no layer",
                            std::max<int64_t>(1, (all + 1) / stages_per_rank)));
  const double head = target_share * head_in_layers(config, sequence_length);
  double shortest = std::numeric_limits<double>::infinity();
  int64_t of_last = 0;
  for (int64_t last = 0; last <= all - before; ++last) {
    const double longest =
        std::max(static_cast<double>(divide_up(all - last, before)), static_cast<double>(last) + head);
    if (longest > shortest) continue;
    shortest = longest;
    of_last = last;
  }
  const int64_t rest = all - of_last, more = rest % before;
  split.layers.assign(static_cast<size_t>(before - more), rest / before);
  split.layers.resize(static_cast<size_t>(before), rest / before + 1);
  split.layers.push_back(of_last);
  return split;
}

double head_in_layers(ModelConfig config, int64_t sequence_length) {
  const auto flops = [&](int64_t layers) {
    config.num_hidden_layers = layers;
    return training_flops_per_token(config, sequence_length).causal;
  };
  return flops(0) / (flops(1) - flops(0));
}

StageSplit with_layers(StageSplit split, const std::vector<int64_t>& layers) {
  const auto refuse = [&](const std::string& why) {
    throw Error(
        ExitCode::kUsage, fmt::format("mesh.pipeline_layers is [{}]: {}", fmt::join(layers, ", "), why),
        fmt::format("mesh.pipeline_layers = [{}] is what \"auto\" chooses", fmt::join(split.layers, ", ")));
  };
  if (layers.size() != split.layers.size())
    refuse(fmt::format("{} stages, the pipeline has {}", layers.size(), split.layers.size()));
  for (size_t s = 0; s < layers.size(); ++s)
    if (layers[s] < (s + 1 < layers.size() ? 1 : 0))
      refuse(fmt::format("stage {} has {} layers, and only the last may have none", s, layers[s]));
  if (sum_of(layers) != sum_of(split.layers))
    refuse(fmt::format("{} layers, the model has {}", sum_of(layers), sum_of(split.layers)));
  split.layers = layers;
  return split;
}

}  // namespace ripstop
