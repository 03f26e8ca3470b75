#include "train/plan/mesh_search.h"

#include <algorithm>
#include <limits>
#include <list>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>

#include "model/core/rounding.h"
#include "train/plan/fitting_meshes.h"
#include "train/plan/micro_batch.h"
#include "train/plan/pipeline_plan.h"

namespace ripstop {
namespace {

// The most ranks of a pipeline that was not asked for: in a longer one, ranks are idle for too long.
constexpr int64_t kMostPipeline = 16;

// A mesh with a mode of recomputation, its micro-batches to try (largest first), and the plans made so far.
class SearchedMesh {
 public:
  SearchedMesh(const RunConfig& config, const RunTarget& target, ResolvedRun unplanned,
               std::vector<int64_t> sizes)
      : config_(config), target_(target), unplanned_(std::move(unplanned)), sizes_(std::move(sizes)) {}

  // The index of the largest micro-batch that fits; smaller ones count as fitting. sizes().size(): none fits.
  size_t first_that_fits() {
    if (!target_.device_memory_bytes || planned(0).fits(target_)) return 0;  // the usual case
    const auto all = std::views::iota(size_t{0}, sizes_.size());
    const auto is_too_large = [&](size_t index) { return !planned(index).fits(target_); };
    return static_cast<size_t>(std::ranges::partition_point(all, is_too_large) - all.begin());
  }

  const ResolvedRun& planned(size_t index) {
    const auto [place, is_new] = planned_.try_emplace(index, unplanned_);
    if (is_new) plan_with_micro_batch(config_, target_, sizes_[index], place->second);
    return place->second;
  }
  // Same as planned(), with ResolvedRun::time.
  const ResolvedRun& timed(size_t index) {
    planned(index);
    ResolvedRun& run = planned_.at(index);
    if (!run.time) run.time = target_.step_time(run.request(target_.device));
    return run;
  }

  const MeshSizes& mesh() const { return unplanned_.mesh; }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  const RunConfig& config_;
  const RunTarget& target_;
  ResolvedRun unplanned_;
  std::vector<int64_t> sizes_;
  std::map<size_t, ResolvedRun> planned_;
};

// Micro-batches of one mesh that fit and have the same lost_percent, largest first. Apart from the bytes of
// empty sequences, a smaller micro-batch sends no fewer, so the best one left is at `next`, and later ones
// need no plan yet.
struct Ladder {
  SearchedMesh* mesh = nullptr;
  std::vector<size_t> indices;
  size_t next = 0;

  bool is_done() const { return next == indices.size(); }
  const ResolvedRun& row() const { return mesh->planned(indices[next]); }
};

int64_t at_most_as_few(int64_t fewest) {
  return static_cast<int64_t>(kAsFewBytes * static_cast<double>(fewest));
}

int64_t lost_percent(const RunConfig& config, const MeshSizes& mesh, int64_t sequence_count,
                     double recomputed_share, double pipeline_idle_share) {
  const auto useful = static_cast<double>(config.train.global_batch_sequences);
  const double computed = static_cast<double>(computed_sequences(config, mesh, sequence_count)) *
                          (1 + recomputed_share) / (1 - pipeline_idle_share);
  return static_cast<int64_t>(100 * (computed - useful) / computed);
}

class Search {
 public:
  Search(const RunConfig& config, const RunTarget& target, const KeptSizes& kept)
      : config_(config), target_(target), unplanned_(unplanned_run(config, target)) {
    for (const int64_t tensor : tensor_axis_sizes(unplanned_.model)) {
      if (target.ranks % tensor != 0 || !tensor_groups_fit_nodes(config, target, tensor)) continue;
      for (const int64_t pipeline : divisors(target.ranks / tensor)) {
        const std::vector<int64_t> sizes = divisors(target.ranks / tensor / pipeline);
        for (const int64_t fsdp : std::views::reverse(sizes)) {
          const MeshSizes mesh{.replicate = target.ranks / tensor / pipeline / fsdp,
                               .fsdp = fsdp,
                               .tensor = tensor,
                               .pipeline = pipeline};
          const auto fits = [&](MeshAxis axis) { return kept[axis].value_or(mesh[axis]) == mesh[axis]; };
          if (!std::ranges::all_of(kMeshAxes, fits)) continue;
          for (const int64_t stages_per_rank : {1, 2})
            if (tries_pipeline(mesh, stages_per_rank, kept)) add(mesh, stages_per_rank);
        }
      }
    }
  }

  MeshSearch best(int64_t most_rows) {
    MeshSearch found{.rows = {}, .fitting = fitting_, .first = {}};
    if (!meshes_.empty()) found.first = meshes_.front().mesh();
    if (target_.rates) add_shortest(most_rows, found.rows);
    for (auto& [percent, ladders] : ladders_) add_best(ladders, static_cast<size_t>(most_rows), found.rows);
    for (ResolvedRun& run : found.rows) enlarge_head_chunk(target_, run);
    return found;
  }

 private:
  bool tries_pipeline(const MeshSizes& mesh, int64_t stages_per_rank, const KeptSizes& kept) const {
    if (mesh.pipeline == 1) return stages_per_rank == 1;
    const int64_t layers = unplanned_.model.num_hidden_layers, of_node = target_.ranks_per_node;
    const int64_t stages = mesh.pipeline * stages_per_rank;
    if (kept.pipeline)
      return stages_per_rank == config_.mesh.pipeline_stages_per_rank && stages <= layers + 1;
    return target_.rates && target_.rates->knows_products() && target_.ranks > of_node &&
           of_node % (mesh.fsdp * mesh.tensor) == 0 && mesh.pipeline <= kMostPipeline && stages <= layers;
  }
  double idle_share(ResolvedRun run, int64_t sequence_count) const {
    split_layers(config_, target_, run);
    const int64_t sequences = computed_sequences(config_, run.mesh, sequence_count) / run.mesh.data_ranks();
    return pipeline_idle_share(run, target_.rows.target_share, sequences / sequence_count);
  }
  // Adds the micro-batches that fit on `mesh`, each with the least recomputation that fits.
  void add(const MeshSizes& mesh, int64_t stages_per_rank) {
    std::vector<int64_t> sizes = micro_batches_to_try(config_, target_, mesh, stages_per_rank);
    if (config_.train.micro_batch_sequences) sizes = {*config_.train.micro_batch_sequences};
    // Skips what the verb train refuses: rows that the tensor axis cannot cut, and incomplete turns.
    if (sizes.empty() || sizes.front() * config_.data.sequence_length % mesh.tensor != 0 ||
        !are_turns_whole(config_, mesh, stages_per_rank, sizes.front()))
      return;
    ResolvedRun run = unplanned_;
    run.mesh = mesh;
    run.step.sharding.stages_per_rank = stages_per_rank;
    for (const Recompute recompute : recomputes_to_try(config_)) {
      run.step.sharding.recompute = recompute;
      sizes.resize(add(run, sizes));
      if (sizes.empty()) return;
    }
  }

  // Adds the sizes that fit, in one ladder for each lost_percent. Returns the number of sizes that do not
  // fit; they come first in `sizes`.
  size_t add(const ResolvedRun& run, const std::vector<int64_t>& sizes) {
    SearchedMesh& searched = meshes_.emplace_back(config_, target_, run, sizes);
    const size_t first = searched.first_that_fits();
    fitting_ += static_cast<int64_t>(sizes.size() - first);
    std::map<int64_t, Ladder> by_percent;
    for (size_t i = first; i < sizes.size(); ++i) {
      Ladder& ladder = by_percent[lost_percent(config_, run.mesh, sizes[i], run.recomputed_share(),
                                               idle_share(run, sizes[i]))];
      ladder.mesh = &searched;
      ladder.indices.push_back(i);
    }
    for (auto& [percent, ladder] : by_percent) ladders_[percent].push_back(std::move(ladder));
    return first;
  }

  SentBytes sent(const Ladder& ladder) const {
    const ResolvedRun& run = ladder.row();
    return sent_bytes(run.plan.traffic_per_step, run.mesh, target_.ranks_per_node);
  }

  // Moves the rows with the shortest steps to `rows`. Times every micro-batch that fits, because neither a
  // larger micro-batch nor fewer bytes always make the step shorter.
  void add_shortest(int64_t most, std::vector<ResolvedRun>& rows) {
    std::vector<const ResolvedRun*> all;
    for (const auto& [percent, ladders] : std::exchange(ladders_, {}))
      for (const Ladder& ladder : ladders)
        for (const size_t index : ladder.indices) all.push_back(&ladder.mesh->timed(index));
    std::ranges::stable_sort(all, {}, [](const ResolvedRun* run) { return run->time->seconds; });
    for (const ResolvedRun* run : all | std::views::take(most)) rows.push_back(*run);
  }

  // Moves rows from `ladders`, all of one lost_percent, to `rows`, best first, until there are `most` rows.
  void add_best(std::vector<Ladder>& ladders, size_t most, std::vector<ResolvedRun>& rows) const {
    for (; rows.size() < most && !ladders.empty();
         std::erase_if(ladders, [](const Ladder& ladder) { return ladder.is_done(); })) {
      Ladder& best = best_of(ladders);
      rows.push_back(best.row());
      ++best.next;
    }
  }

  // The best ladder in the order of MeshSearch::rows. `ladders` must not be empty.
  Ladder& best_of(std::vector<Ladder>& ladders) const {
    int64_t between = std::numeric_limits<int64_t>::max(), total = between;
    for (const Ladder& ladder : ladders) between = std::min(between, sent(ladder).between_nodes);
    const auto few_between = [&](const Ladder& ladder) {
      return sent(ladder).between_nodes <= at_most_as_few(between);
    };
    for (const Ladder& ladder : ladders)
      if (few_between(ladder)) total = std::min(total, sent(ladder).total());
    const auto order = [&](const Ladder& ladder) {
      const ResolvedRun& run = ladder.row();
      const bool is_few = few_between(ladder) && sent(ladder).total() <= at_most_as_few(total);
      return std::tuple(!is_few, -run.step.sharding.sequence_count, run.needed_bytes());
    };
    return *std::ranges::min_element(ladders, {}, order);
  }

  const RunConfig& config_;
  const RunTarget& target_;
  ResolvedRun unplanned_;
  std::list<SearchedMesh> meshes_;                  // ladders point into the list
  std::map<int64_t, std::vector<Ladder>> ladders_;  // by lost_percent
  int64_t fitting_ = 0;
};

}  // namespace

int64_t lost_percent(const RunConfig& config, const ResolvedRun& run) {
  return lost_percent(config, run.mesh, run.step.sharding.sequence_count, run.recomputed_share(),
                      run.pipeline_idle_share);
}

SentBytes sent_bytes(const AxisBytes& traffic, const MeshSizes& mesh, int64_t ranks_per_node) {
  // Consecutive ranks share a node, and the tensor axis varies fastest. So a group of an axis lies inside an
  // aligned block of ranks; the block's size is the product of this axis and all faster ones.
  const bool one_node = mesh.ranks() <= ranks_per_node;
  const auto inside = [&](int64_t block) { return one_node || ranks_per_node % block == 0; };
  SentBytes sent;
  int64_t block = 1;
  for (const MeshAxis axis : std::views::reverse(kMeshAxes)) {
    block *= mesh[axis];
    (inside(block) ? sent.inside_nodes : sent.between_nodes) += traffic[axis];
  }
  return sent;
}

MeshSearch search_meshes(const RunConfig& config, const RunTarget& target, const KeptSizes& kept,
                         int64_t most_rows) {
  return Search(config, target, kept).best(most_rows);
}

}  // namespace ripstop
