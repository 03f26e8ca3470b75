#include "train/plan/plan_text.h"

#include <fmt/ranges.h>

#include "train/report/human_text.h"

namespace ripstop {

std::string device_memory_text(const ResolvedRun& run, int64_t device_memory_bytes) {
  std::string text = bytes_text(device_memory_bytes);
  if (run.library_bytes > 0)
    text += fmt::format(", of which CUDA's libraries take {}", bytes_text(run.library_bytes));
  return text;
}

std::string parameters_text(const ResolvedRun& run) {
  const LoraConfig& lora = run.step.sharding.lora;
  const int64_t parameters = parameter_count(run.model);
  if (!lora.any()) return fmt::format("{} parameters", parameters);
  return fmt::format("{} frozen parameters and {} of adapters (rank {} on {})", parameters,
                     run.trained_parameters(), lora.rank, fmt::join(lora.target_names(), ", "));
}

std::string recompute_text(const ResolvedRun& run) {
  const Recompute recompute = run.step.sharding.recompute;
  if (recompute == Recompute::kNone) return std::string(to_string(recompute));
  return fmt::format("{} ({:.1f}% more operations than none)", to_string(recompute),
                     100 * run.recomputed_share());
}

std::string_view units_text(bool reshard_after_forward) {
  return reshard_after_forward ? "resharded after forward" : "kept whole after forward";
}

std::string plan_text(const ResolvedRun& run, const std::optional<int64_t>& device_memory_bytes) {
  const MemoryUse memory = run.memory();
  std::string text;
  for (const MemoryCategory category : kMemoryCategories) {
    if (category == MemoryCategory::kSnapshot && memory[category] == 0) continue;
    // The note on bfloat16 moments explains why the number is smaller than usual.
    const bool halved = category == MemoryCategory::kOptimizer && run.step.adamw.moments == DType::kBFloat16;
    text += fmt::format("  {:<14}{:>12}{}\n", to_string(category), bytes_text(memory[category]),
                        halved ? " with optimizer.moments = \"bfloat16\"" : "");
  }
  text += fmt::format("  {:<14}{:>12}{}\n", "total", bytes_text(memory.total()),
                      device_memory_bytes ? " of " + device_memory_text(run, *device_memory_bytes) : "");
  if (run.summaries)
    text += fmt::format("  {:<14}{:>12} of it only while a validation writes summaries\n", "",
                        bytes_text(run.summaries_memory.total()));
  if (run.snapshot.beside_device && run.snapshot.whole_bytes > 0)
    text += fmt::format("  {:<14}{:>12} for saves while training goes on\n", "host memory",
                        bytes_text(run.snapshot.kept_bytes));
  if (!run.snapshot.is_whole())
    text += fmt::format(
        "  {:<14}{:>12} of the {} of a save in pieces: updates wait until these are written\n", "",
        bytes_text(run.snapshot.whole_bytes - run.snapshot.kept_bytes), bytes_text(run.snapshot.whole_bytes));
  return text + "  sent per step  " + axes_text(", ", [&](MeshAxis axis) {
           if (!run.mesh.is_named(axis)) return std::string();
           return fmt::format("{} {}", to_string(axis), bytes_text(run.plan.traffic_per_step[axis]));
         });
}

}  // namespace ripstop
