#include "train/plan/micro_batch.h"

#include <algorithm>
#include <optional>

#include "model/core/rounding.h"
#include "model/head_loss.h"
#include "train/plan/pipeline_plan.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// Rows of a micro-batch on a CPU with which matrix products reach full speed.
constexpr int64_t kCpuRows = 4096;

// The most rows of an "auto" micro-batch in a pipeline: larger ones cost more idle time than products gain.
constexpr int64_t kPipelineRows = 2048;

// The most summaries that a rank writes at once in a validation.
constexpr int64_t kSlots = 32;

// Plans the model that writes summaries at validations, if the config asks for any. Halves its slots until
// the plan fits.
void plan_summaries(const RunConfig& config, const RunTarget& target, ResolvedRun& run) {
  if (!config.train.validates() || config.generation.validate_examples == 0) return;
  const int64_t share = divide_up(config.generation.validate_examples, run.summaries_mesh().replicate);
  for (int64_t slots = std::min(share, kSlots); slots >= 1; slots /= 2) {
    run.summaries = InferenceOptions::of(run.model, config.data.sequence_length, run.step.sharding.compute,
                                         slots, config.generation, target.dataset_vocabulary);
    run.summaries->lora = run.step.sharding.lora;
    run.summaries_memory =
        plan_inference(run.model, *run.summaries, run.summaries_mesh(), {}, target.device).memory;
    if (run.fits(target)) return;
  }
}

// Plans `run` with the largest of `sizes` that fits. The smallest size must be planned in `run`, and fit.
void plan_with_largest(const RunConfig& config, const RunTarget& target, const std::vector<int64_t>& sizes,
                       ResolvedRun& run) {
  const auto is_too_large = [&](int64_t size) { return !plan_with_micro_batch(config, target, size, run); };
  if (sizes.size() == 1 || !is_too_large(sizes.front())) return;  // the usual case
  // Bisects, because a large batch has thousands of sizes.
  const int64_t largest = *std::ranges::partition_point(sizes, is_too_large);
  if (run.step.sharding.sequence_count != largest) plan_with_micro_batch(config, target, largest, run);
}

// "data ranks 2 to 3 have".
std::string last_data_ranks(int64_t first, int64_t data_ranks) {
  if (first == data_ranks - 1) return fmt::format("data rank {} has", first);
  return fmt::format("data ranks {} to {} have", first, data_ranks - 1);
}

// Whether tensor-parallel products are cut into pieces that overlap with messages: by default on a GPU if a
// rank has at least kLeastRows rows (an estimate). Smaller pieces do not fill a GPU. On a CPU the messages
// need the cores that compute.
bool overlaps_tensor(const RunConfig& config, const RunTarget& target, int64_t tensor,
                     int64_t sequence_count) {
  constexpr int64_t kLeastRows = 2048;
  if (config.mesh.overlap_tensor) return *config.mesh.overlap_tensor;
  return target.device == DeviceKind::kCuda &&
         sequence_count * config.data.sequence_length / tensor >= kLeastRows;
}

}  // namespace

bool are_turns_whole(const RunConfig& config, const MeshSizes& mesh, int64_t stages_per_rank,
                     int64_t sequence_count) {
  const int64_t share = divide_up(config.train.global_batch_sequences, mesh.data_ranks());
  return stages_per_rank == 1 || divide_up(share, sequence_count) % mesh.pipeline == 0;
}

std::vector<int64_t> micro_batches_to_try(const RunConfig& config, const RunTarget& target,
                                          const MeshSizes& mesh, int64_t stages_per_rank) {
  const int64_t share = divide_up(config.train.global_batch_sequences, mesh.data_ranks());
  const int64_t length = config.data.sequence_length;
  // A CPU reaches full speed at kCpuRows rows. On a GPU more rows are faster, so only memory limits them. In
  // a pipeline more and smaller micro-batches idle less.
  const int64_t rows = mesh.pipeline > 1                   ? kPipelineRows
                       : target.device == DeviceKind::kCpu ? kCpuRows
                                                           : kMostMicroBatchTokens;
  const int64_t most = std::clamp<int64_t>(rows / length, 1, share);
  std::vector<int64_t> sizes;
  const auto fits = [&](int64_t b) {
    return b * length % mesh.tensor == 0 && are_turns_whole(config, mesh, stages_per_rank, b);
  };
  // Takes, for each number of micro-batches, the smallest size that holds the data rank's share of the
  // sequences: a larger size only adds empty sequences.
  for (int64_t b = most; b >= 1; --b)
    if (divide_up(share, divide_up(share, b)) == b && fits(b)) sizes.push_back(b);
  // If fits() refuses all of these sizes, takes the largest that it accepts, or the config's.
  for (int64_t b = most; sizes.empty() && b >= 1; --b)
    if (fits(b)) sizes.push_back(b);
  const std::optional<int64_t> given = config.train.micro_batch_sequences;
  if (sizes.empty() && given && fits(*given)) sizes.push_back(*given);
  return sizes;
}

std::vector<Recompute> recomputes_to_try(const RunConfig& config) {
  if (config.train.recompute == RecomputeChoice::kAuto) return {kRecomputes.begin(), kRecomputes.end()};
  const std::string_view word = to_string(config.train.recompute);
  return {*std::ranges::find(kRecomputes, word, [](Recompute mode) { return to_string(mode); })};
}

std::vector<Recompute> recomputes_from(const RunConfig& config) {
  const Recompute least = recomputes_to_try(config).front();
  return {std::ranges::find(kRecomputes, least), kRecomputes.end()};
}

int64_t computed_sequences(const RunConfig& config, const MeshSizes& mesh, int64_t sequence_count) {
  const int64_t data_ranks = mesh.data_ranks();
  const int64_t share = divide_up(config.train.global_batch_sequences, data_ranks);
  return data_ranks * divide_up(share, sequence_count) * sequence_count;
}

bool plan_with_micro_batch(const RunConfig& config, const RunTarget& target, int64_t sequence_count,
                           ResolvedRun& run) {
  const int64_t data_ranks = run.mesh.data_ranks(), g = config.train.global_batch_sequences;
  run.step.sharding.sequence_count = sequence_count;
  run.step.sharding.overlap_tensor = overlaps_tensor(config, target, run.mesh.tensor, sequence_count);
  run.micro_batches = divide_up(divide_up(g, data_ranks), sequence_count);
  const int64_t computed = computed_sequences(config, run.mesh, sequence_count);
  run.idle_share = 1 - static_cast<double>(g) / static_cast<double>(computed);
  split_layers(config, target, run);
  run.pipeline_idle_share = pipeline_idle_share(run, target.rows.target_share, run.micro_batches);
  // A pipeline first tries what takes most memory: units kept whole are gathered once a step, not for each
  // micro-batch, and more micro-batches in flight hide messages. Both are given up before recomputation or a
  // smaller micro-batch, which cost more. With two stages on each rank, the number in flight is fixed.
  const bool piped = run.mesh.pipeline > 1;
  const std::vector<double> aheads =
      piped && run.step.sharding.stages_per_rank == 1 ? std::vector{1.0, 0.5, 0.0} : std::vector{1.0};
  std::vector<bool> reshards = piped ? std::vector{false, true} : std::vector{true};
  if (config.train.reshard_after_forward) reshards = {*config.train.reshard_after_forward};
  for (const bool reshard : reshards)
    for (const double ahead : aheads) {
      run.step.sharding.reshard_after_forward = reshard;
      run.step.sharding.pipeline_ahead = ahead;
      run.plan = plan_fullest(run.request(target.device));
      run.snapshot = {};
      plan_summaries(config, target, run);
      // Snapshots may take the memory that is left.
      run.snapshot = plan_snapshot(config, target, run.trained_table(), run.mesh, run.step.adamw.moments,
                                   run.memory().total());
      if (run.fits(target)) return true;
    }
  return false;
}

bool plan_with_least_recompute(const RunConfig& config, const RunTarget& target,
                               const std::vector<Recompute>& recomputes, const std::vector<int64_t>& sizes,
                               ResolvedRun& run) {
  std::optional<ResolvedRun> least;
  for (const Recompute recompute : recomputes) {
    run.step.sharding.recompute = recompute;
    if (plan_with_micro_batch(config, target, sizes.back(), run)) {
      plan_with_largest(config, target, sizes, run);
      return true;
    }
    if (!least || run.memory().total() < least->memory().total()) least = run;
  }
  run = *std::move(least);
  return false;
}

void enlarge_head_chunk(const RunTarget& target, ResolvedRun& run) {
  if (target.device != DeviceKind::kCuda || !target.device_memory_bytes) return;
  const int64_t rows = run.step.sharding.sequence_count * run.step.sharding.sequence_length;
  for (int64_t chunk = 8 * HeadLoss::kChunkRows; chunk > HeadLoss::kChunkRows; chunk /= 2) {
    if (chunk / 2 >= rows) continue;  // half of the chunk holds all rows
    ResolvedRun larger = run;
    larger.step.sharding.head_chunk_rows = chunk;
    larger.plan = plan_fullest(larger.request(target.device));
    if (!larger.fits(target)) continue;
    run = std::move(larger);
    return;
  }
}

std::string micro_batches_text(const RunConfig& config, const ResolvedRun& run) {
  const int64_t data_ranks = run.mesh.data_ranks();
  const int64_t busy = std::min(config.train.global_batch_sequences, data_ranks);
  return fmt::format("{} of {} on {} {}{}", counted(run.micro_batches, "micro-batch"),
                     run.step.sharding.sequence_count,
                     busy == data_ranks ? "each of" : fmt::format("{} of", busy),
                     counted(data_ranks, "data rank"), idle_text(config, run));
}

std::string idle_text(const RunConfig& config, const ResolvedRun& run) {
  if (run.idle_share <= 0) return "";
  const int64_t data_ranks = run.mesh.data_ranks(), g = config.train.global_batch_sequences;
  // Sequence k of a step belongs to data rank k mod data_ranks.
  std::string who = "micro-batches are not full";
  if (g < data_ranks)
    who = last_data_ranks(g, data_ranks) + " no sequence";
  else if (g % data_ranks != 0)
    who = last_data_ranks(g % data_ranks, data_ranks) + " 1 sequence less";
  return fmt::format(", {:.1f}% idle: {}, train.global_batch_sequences={} takes the same time",
                     100 * run.idle_share, who,
                     data_ranks * run.micro_batches * run.step.sharding.sequence_count);
}

}  // namespace ripstop
