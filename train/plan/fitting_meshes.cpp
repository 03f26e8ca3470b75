#include "train/plan/fitting_meshes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "train/plan/micro_batch.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// The most ranks that a hint may name: a far larger job is no useful advice.
int64_t most_ranks(const RunTarget& target) {
  constexpr int64_t kTimesTheRanks = 64, kOfAnyJob = 1024;
  return std::max(kTimesTheRanks * target.ranks, kOfAnyJob);
}

std::string mesh_text(const FittingMesh& fitting) {
  return fmt::format("{} needs {}", fitting.settings_text(), bytes_text(fitting.bytes));
}

// The mesh of `ranks` ranks without replicas, which save no memory, and with the config's pipeline.
MeshSizes sharding_mesh(const RunConfig& config, int64_t ranks, int64_t tensor) {
  const int64_t pipeline = *config.mesh.pipeline;
  return {.fsdp = ranks / pipeline / tensor, .tensor = tensor, .pipeline = pipeline};
}

// The smallest mesh found that fits, with a tensor axis of `tensor` ranks and a multiple of `unit` ranks;
// `unit` is a multiple of mesh.pipeline x `tensor`. nullopt: none was found with up to most_ranks() ranks.
std::optional<FittingMesh> fewest_units(const RunConfig& config, const RunTarget& target, ResolvedRun run,
                                        int64_t tensor, int64_t unit) {
  // Whether `units` x `unit` ranks fit with the smallest micro-batch. Leaves the plan in `run`.
  const auto fits = [&](int64_t units) {
    run.mesh = sharding_mesh(config, units * unit, tensor);
    const std::vector<int64_t> sizes =
        micro_batches_to_try(config, target, run.mesh, run.step.sharding.stages_per_rank);
    return !sizes.empty() &&
           plan_with_least_recompute(config, target, recomputes_from(config), {sizes.back()}, run);
  };
  const int64_t most = most_ranks(target) / unit;
  // Doubles from 1, because a far larger mesh than needed may not fit: padding of its shards takes memory.
  int64_t too_few = 0, enough = 1;
  while (enough <= most && !fits(enough)) {
    too_few = enough;
    enough = enough < most ? std::min(2 * enough, most) : most + 1;
  }
  if (enough > most) return std::nullopt;
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (fits(middle) ? enough : too_few) = middle;
  }
  fits(enough);  // plans again: the number tried last may not fit
  return fitting_mesh(run);
}

// The smallest mesh found that fits, in nodes of `ranks_per_node` ranks, or of any size without that number.
std::optional<FittingMesh> fewest_ranks(const RunConfig& config, const RunTarget& target,
                                        const ResolvedRun& run, std::optional<int64_t> ranks_per_node) {
  // Try the config's tensor axis first, then the others from small to large, because large ones are slower.
  std::vector<int64_t> sizes = tensor_axis_sizes(run.model);
  std::ranges::stable_partition(sizes, [&](int64_t size) { return size == *config.mesh.tensor; });
  std::optional<FittingMesh> fewest;
  for (const int64_t tensor : sizes) {
    if (ranks_per_node && !tensor_groups_fit_nodes(config, target, tensor)) continue;
    const int64_t unit = std::lcm(*config.mesh.pipeline * tensor, ranks_per_node.value_or(1));
    const std::optional<FittingMesh> found = fewest_units(config, target, run, tensor, unit);
    if (found && (!fewest || found->mesh.ranks() < fewest->mesh.ranks())) fewest = found;
  }
  return fewest;
}

// The ranks per node to advise: the smallest number, not below `now`, that divides the ranks of `mesh` and
// keeps tensor groups inside nodes, unless the config allows groups across nodes.
int64_t node_size(const RunConfig& config, const MeshSizes& mesh, int64_t now) {
  for (int64_t size = now; size < mesh.ranks(); ++size)
    if (mesh.ranks() % size == 0 && (size % mesh.tensor == 0 || config.mesh.allow_tensor_across_nodes))
      return size;
  return mesh.ranks();
}

std::string words_to_type(const RunConfig& config, const FittingMesh& fitting, int64_t ranks_per_node) {
  const MeshSizes& mesh = fitting.mesh;
  const int64_t micro_batch = fitting.micro_batch_sequences;
  std::string words =
      fmt::format("--nodes {} --ntasks-per-node {}", mesh.ranks() / ranks_per_node, ranks_per_node);
  const auto add = [&](const std::string& key, std::optional<int64_t> asked, int64_t size) {
    if (asked.value_or(size) != size) words += fmt::format(" {}={}", key, size);
  };
  for (const MeshAxis axis : kMeshAxes)
    add(fmt::format("mesh.{}", to_string(axis)), config.mesh[axis], mesh[axis]);
  add("train.micro_batch_sequences", config.train.micro_batch_sequences, micro_batch);
  if (recomputes_to_try(config).size() == 1 && recomputes_to_try(config).front() != fitting.recompute)
    words += fmt::format(" train.recompute={}", to_string(fitting.recompute));
  return words;
}

void find_other_ranks(const RunConfig& config, const RunTarget& target, const ResolvedRun& run,
                      FittingMeshes& found) {
  found.most_ranks = most_ranks(target);
  // One rank per node does not tell how many ranks a node could have.
  if (target.ranks_per_node > 1) found.more_ranks = fewest_ranks(config, target, run, target.ranks_per_node);
  if (!found.more_ranks) found.more_ranks = fewest_ranks(config, target, run, std::nullopt);
  if (!found.more_ranks || target.ranks_per_node == 0) return;
  const int64_t ranks_per_node = node_size(config, found.more_ranks->mesh, target.ranks_per_node);
  found.words_to_type = words_to_type(config, *found.more_ranks, ranks_per_node);
}

// Plans `run` on each sharding_mesh() of target.ranks ranks that suits the nodes, and then calls body(fits).
template <class Body>
void plan_same_ranks(const RunConfig& config, const RunTarget& target, ResolvedRun& run, Body body) {
  for (const int64_t tensor : tensor_axis_sizes(run.model)) {
    if (target.ranks % (*config.mesh.pipeline * tensor) != 0 ||
        !tensor_groups_fit_nodes(config, target, tensor))
      continue;
    run.mesh = sharding_mesh(config, target.ranks, tensor);
    const std::vector<int64_t> sizes =
        micro_batches_to_try(config, target, run.mesh, run.step.sharding.stages_per_rank);
    if (!sizes.empty()) body(plan_with_least_recompute(config, target, recomputes_from(config), sizes, run));
  }
}

}  // namespace

FittingMesh fitting_mesh(const ResolvedRun& run) {
  return {run.mesh, run.step.sharding.sequence_count, run.needed_bytes() + run.library_bytes,
          run.step.sharding.recompute};
}

std::string FittingMesh::settings_text() const {
  const bool computes_again = recompute != Recompute::kNone;
  return fmt::format("{} with micro_batch_sequences {}{}", mesh.to_text(), micro_batch_sequences,
                     computes_again ? fmt::format(" and recompute {}", to_string(recompute)) : "");
}

bool tensor_groups_fit_nodes(const RunConfig& config, const RunTarget& target, int64_t tensor) {
  return target.ranks_per_node == 0 || target.ranks_per_node % tensor == 0 ||
         config.mesh.allow_tensor_across_nodes;
}

FittingMeshes find_fitting_meshes(const RunConfig& config, const RunTarget& target, ResolvedRun run) {
  FittingMeshes found;
  found.least.bytes = std::numeric_limits<int64_t>::max();
  plan_same_ranks(config, target, run, [&](bool fits) {
    const FittingMesh planned = fitting_mesh(run);
    if (planned.bytes < found.least.bytes) found.least = planned;
    if (fits) found.same_ranks.push_back(planned);
  });
  if (!found.same_ranks.empty()) return found;
  find_other_ranks(config, target, run, found);
  if (run.step.adamw.moments == DType::kBFloat16) return found;
  run.step.adamw.moments = DType::kBFloat16;
  plan_same_ranks(config, target, run, [&](bool fits) {
    if (fits && !found.bfloat16_moments) found.bfloat16_moments = fitting_mesh(run);
  });
  return found;
}

std::string FittingMeshes::to_text() const {
  std::string text;
  for (const FittingMesh& fitting : same_ranks) text += (text.empty() ? "" : "; ") + mesh_text(fitting);
  if (!text.empty()) return "these fit: " + text;
  // Advice for a new run only, because all checkpoints of a run have moments of one dtype.
  const std::string moments =
      bfloat16_moments
          ? fmt::format("; a new run with optimizer.moments=bfloat16 fits: {}", mesh_text(*bfloat16_moments))
          : "";
  const std::string now =
      fmt::format("with {} as now, {}", counted(least.mesh.ranks(), "rank"), mesh_text(least));
  if (!more_ranks)
    return fmt::format(
        "no number of ranks up to {} helps: {}; shorter sequences or a smaller model need less{}", most_ranks,
        now, moments);
  const std::string words = words_to_type.empty() ? "" : " (" + words_to_type + ")";
  return fmt::format("{} with as much memory each would fit{}: {}; {}{}",
                     counted(more_ranks->mesh.ranks(), "rank"), words, mesh_text(*more_ranks), now, moments);
}

}  // namespace ripstop
