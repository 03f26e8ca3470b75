#include "train/plan/fitting_meshes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "train/plan/micro_batch.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// Beyond this a job is of another kind, and its rounding to shards no longer small.
constexpr int64_t kMostTimesTheRanks = 64;

std::string mesh_text(const FittingMesh& fitting) {
  return fmt::format("{} with micro_batch_sequences {} needs {}", fitting.mesh.to_text(),
                     fitting.micro_batch_sequences, bytes_text(fitting.bytes));
}

// Looks for the fewest ranks on a tensor axis of one size.
class RankSearch {
 public:
  RankSearch(const RunConfig& config, const RunTarget& target, ResolvedRun run, int64_t tensor)
      : config_(config), target_(target), run_(std::move(run)), tensor_(tensor) {}

  std::optional<FittingMesh> fewest() {
    const int64_t per_node = std::max<int64_t>(target_.ranks_per_node, 1);
    if (per_node > 1 && per_node % tensor_ != 0 && !config_.mesh.allow_tensor_across_nodes)
      return std::nullopt;  // a tensor group lies inside a node
    // Whole nodes of whole tensor groups.
    const int64_t unit = std::lcm(tensor_, per_node);
    int64_t too_few = target_.ranks / unit, enough = too_few + 1;
    const int64_t most = std::max(kMostTimesTheRanks * target_.ranks / unit, enough);
    if (!fits(most * unit)) return std::nullopt;
    while (enough < most && !fits(enough * unit)) {
      too_few = enough;
      enough = std::min(2 * enough, most);
    }
    while (enough - too_few > 1) {
      const int64_t middle = too_few + (enough - too_few) / 2;
      (fits(middle * unit) ? enough : too_few) = middle;
    }
    fits(enough * unit);  // plans it again: the last one tried may have been too small
    return fitting_mesh(run_);
  }

 private:
  // Whether so many ranks fit with their smallest micro-batch. Leaves the plan in run_.
  bool fits(int64_t ranks) {
    run_.mesh = {.replicate = 1, .fsdp = ranks / tensor_, .tensor = tensor_};
    const std::vector<int64_t> sizes = micro_batches_to_try(config_, target_, run_.mesh);
    return !sizes.empty() && plan_with_micro_batch(config_, target_, sizes.back(), run_);
  }

  const RunConfig& config_;
  const RunTarget& target_;
  ResolvedRun run_;
  int64_t tensor_;
};

std::optional<FittingMesh> fewest_ranks(const RunConfig& config, const RunTarget& target,
                                        const ResolvedRun& run) {
  // The tensor axis that the config asks for, else the smallest that helps: a larger one is slower.
  std::vector<int64_t> sizes = tensor_axis_sizes(run.model);
  std::ranges::stable_partition(sizes, [&](int64_t size) { return size == config.mesh.tensor; });
  for (const int64_t tensor : sizes)
    if (std::optional<FittingMesh> found = RankSearch(config, target, run, tensor).fewest()) return found;
  return std::nullopt;
}

}  // namespace

FittingMesh fitting_mesh(const ResolvedRun& run) {
  return {run.mesh, run.step.sharding.sequence_count, run.memory().total() + run.library_bytes};
}

bool tensor_groups_fit_nodes(const RunConfig& config, const RunTarget& target, int64_t tensor) {
  return target.ranks_per_node == 0 || target.ranks_per_node % tensor == 0 ||
         config.mesh.allow_tensor_across_nodes;
}

FittingMeshes find_fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run) {
  FittingMeshes found;
  found.ranks_per_node = target.ranks_per_node;
  found.least.bytes = std::numeric_limits<int64_t>::max();
  for (const int64_t tensor : tensor_axis_sizes(run.model)) {
    if (target.ranks % tensor != 0 || !tensor_groups_fit_nodes(config, target, tensor)) continue;
    // A replicate axis saves no memory, so try only fsdp x tensor.
    run.mesh = {.replicate = 1, .fsdp = target.ranks / tensor, .tensor = tensor};
    const std::vector<int64_t> sizes = micro_batches_to_try(config, target, run.mesh);
    if (sizes.empty()) continue;
    // The largest that fits is the fastest one of this mesh.
    const bool fits = plan_with_largest(config, target, sizes, run);
    const FittingMesh planned = fitting_mesh(run);
    if (planned.bytes < found.least.bytes) found.least = planned;
    if (fits) found.same_ranks.push_back(planned);
  }
  if (found.same_ranks.empty()) found.more_ranks = fewest_ranks(config, target, run);
  return found;
}

std::string FittingMeshes::to_text() const {
  std::string text;
  for (const FittingMesh& fitting : same_ranks) text += (text.empty() ? "" : "; ") + mesh_text(fitting);
  if (!text.empty()) return "these fit: " + text;
  // The memory with the mesh that needs so little: another mesh of as many ranks would need more.
  const std::string now =
      fmt::format("with {} as now, {}", counted(least.mesh.ranks(), "rank"), mesh_text(least));
  if (!more_ranks)
    return fmt::format("no number of ranks helps: {}; shorter sequences or a smaller model need less", now);
  const int64_t ranks = more_ranks->mesh.ranks();
  const std::string nodes =
      ranks_per_node > 1 && ranks % ranks_per_node == 0
          ? fmt::format(" ({} of {})", counted(ranks / ranks_per_node, "node"), ranks_per_node)
          : "";
  return fmt::format("{} with as much memory each would fit{}: {}; {}", counted(ranks, "rank"), nodes,
                     mesh_text(*more_ranks), now);
}

}  // namespace ripstop
