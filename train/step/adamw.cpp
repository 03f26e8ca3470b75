#include "train/step/adamw.h"

#include <algorithm>
#include <utility>

#include "model/core/philox.h"

namespace ripstop {

uint64_t moment_key(uint64_t seed, std::string_view parameter) {
  const uint64_t name = hash_of_name(parameter);
  const PhiloxBlock key =
      philox({static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32), 0, 0}, seed);
  return uint64_t{key[1]} << 32 | key[0];
}

AdamW::AdamW(ShardedTransformer& model, const AdamWOptions& options, const Device& device,
             MemoryLedger& ledger)
    : options_(options) {
  for (const FsdpUnit& unit : model.trained_units()) {
    const int64_t n = unit.master().count(), bytes = n * element_bytes(options.moments);
    Buffer memory(device, ledger, MemoryCategory::kOptimizer, 2 * bytes);
    const Tensor first = tensor_in(memory, 0, options.moments, {n});
    const Tensor second = tensor_in(memory, bytes, options.moments, {n});
    moments_.push_back({std::move(memory), first, second, ranges_of(unit)});
  }
}

std::vector<AdamW::Range> AdamW::ranges_of(const FsdpUnit& unit) const {
  // Vectors come first in the unit, so one cut separates them from the matrices.
  const int64_t shard = unit.master().count();
  const int64_t vectors = std::clamp<int64_t>(unit.layout().vector_elements() - unit.shard_begin(), 0, shard);
  if (options_.moments == DType::kFloat32)
    return {{0, vectors, options_.decay_norms, {}}, {vectors, shard - vectors, true, {}}};
  // The random bits belong to logical elements, so each parameter has its own range. Padding between ranges
  // stays zero.
  std::vector<Range> ranges;
  const int64_t begin = unit.shard_begin();
  for (const Box& slice : unit.layout().slices()) {
    const int64_t first = std::max(begin, slice.offset);
    const int64_t end = std::min(begin + shard, slice.offset + slice.rows * slice.stride);
    if (slice.empty() || first >= end) continue;
    const ParameterSpec& p = *slice.parameter;
    ranges.push_back({.begin = first - begin,
                      .count = end - first,
                      .decays = first - begin >= vectors || options_.decay_norms,
                      .bits = {.key = moment_key(options_.seed, p.name),
                               .origin = slice.row * p.columns + slice.column,
                               .begin = first - slice.offset,
                               .stride = slice.stride,
                               .columns = p.columns}});
  }
  return ranges;
}

void AdamW::step(Context& context, ShardedTransformer& model, double learning_rate, int64_t update,
                 const Tensor& scale, const std::function<void(size_t unit)>& before_unit) {
  const ProfilerRange recorded(context.stream, "update");
  for (size_t u = 0; u < moments_.size(); ++u) {
    if (before_unit) before_unit(u);
    FsdpUnit& unit = model.trained_units()[u];
    const Moments& moments = moments_[u];
    for (const Range& range : moments.ranges) {
      const AdamWStep numbers{.learning_rate = learning_rate,
                              .beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .epsilon = options_.epsilon,
                              .weight_decay = range.decays ? options_.weight_decay : 0.0,
                              .step = update,
                              .bits = range.bits};
      const auto part = [&](const Tensor& whole) { return whole.row_range(range.begin, range.count); };
      adamw(context, numbers, scale, part(unit.gradient()), part(unit.master()), part(moments.first),
            part(moments.second), unit.compute_copy().empty() ? Tensor{} : part(unit.compute_copy()));
    }
    unit.weights_changed();
  }
}

}  // namespace ripstop
