#include "train/plan/pipeline_plan.h"

#include <fmt/ranges.h>

#include <utility>

#include "model/core/rounding.h"
#include "train/plan/plan_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// "8, 8 and 7".
std::string enumerated(const std::vector<std::string>& words) {
  if (words.size() < 2) return fmt::format("{}", fmt::join(words, ""));
  return fmt::format("{} and {}", fmt::join(words.begin(), words.end() - 1, ", "), words.back());
}

// "3 micro-batches on 4 stages, 50% idle: train.micro_batch_sequences=1 gives 12, 20% idle".
std::string few_micro_batches_note(const RunConfig& config, const RunTarget& target, const ResolvedRun& run) {
  const int64_t stages = run.mesh.pipeline, sequences = run.step.sharding.sequence_count;
  if (run.micro_batches >= stages) return "";
  const auto idle = [&](int64_t micro_batches) {
    return fmt::format("{:.0f}% idle",
                       100 * pipeline_idle_share(run, target.rows.target_share, micro_batches));
  };
  const int64_t share = divide_up(config.train.global_batch_sequences, run.mesh.data_ranks());
  std::string help =
      fmt::format("train.global_batch_sequences={} gives {}, {}",
                  4 * stages * sequences * run.mesh.data_ranks(), 4 * stages, idle(4 * stages));
  if (sequences > 1 && config.data.sequence_length % run.mesh.tensor == 0)
    help = fmt::format("train.micro_batch_sequences=1 gives {}, {}", share, idle(share));
  return fmt::format("{} on {} stages, {}: {}", counted(run.micro_batches, "micro-batch"), stages,
                     idle(run.micro_batches), help);
}

}  // namespace

void split_layers(const RunConfig& config, const RunTarget& target, ResolvedRun& run) {
  ShardingOptions& sharding = run.step.sharding;
  const auto& given = config.mesh.pipeline_layers;
  sharding.stage_layers.clear();
  if (run.mesh.pipeline == 1 && !given) return;
  const int64_t stages_per_rank = pipeline_sizes(run.mesh, sharding, run.micro_batches).stages_per_rank;
  StageSplit split = split_stages(run.model, sharding.sequence_length, target.rows.target_share,
                                  run.mesh.pipeline, stages_per_rank);
  if (given && given->size() == split.layers.size()) split = with_layers(std::move(split), *given);
  sharding.stage_layers = std::move(split.layers);
}

double pipeline_idle_share(const ResolvedRun& run, double target_share, int64_t micro_batches) {
  if (run.mesh.pipeline == 1) return 0;
  const ShardingOptions& sharding = run.step.sharding;
  const auto all = static_cast<double>(run.model.num_hidden_layers);
  const double head = head_in_layers(run.model, sharding.sequence_length);
  // The unit of time is the forward of a layer. A backward takes two, and its recomputation.
  const double total = training_flops_per_token(run.model, sharding.sequence_length).causal;
  const double again =
      recomputed_flops_per_token(run.model, sharding.sequence_length, sharding.recompute).causal;
  const double of_backward = 2 + 3 * again / all / (total / (all + head));
  std::vector<double> forward, backward;
  for (const int64_t layers : stage_split(run.model, run.mesh, sharding).layers) {
    forward.push_back(static_cast<double>(layers));
    backward.push_back(of_backward * forward.back());
  }
  backward.back() += 3 * target_share * head;  // the head's forward and backward
  PipelineSizes sizes = pipeline_sizes(run.mesh, sharding, micro_batches);
  sizes.ahead = 1;
  return pipeline_timeline(sizes, forward, backward, /*message=*/0).idle_share;
}

std::string pipeline_text(const ResolvedRun& run, DeviceKind device) {
  std::vector<std::string> layers, in_flight, memory;
  for (const StagePlan& each : plan_stages(run.request(device))) {
    layers.push_back(std::to_string(each.stage.layers));
    if (each.stage.number >= run.mesh.pipeline) continue;  // a rank's second stage: in the lists already
    in_flight.push_back(std::to_string(each.in_flight));
    memory.push_back(bytes_text(each.bytes));
  }
  return fmt::format(
      "{} stages of {} layers{}, {:.1f}% idle; {} micro-batches in flight; {} a rank; units {}",
      layers.size(), enumerated(layers), layers.size() > memory.size() ? ", two on each rank" : "",
      100 * run.pipeline_idle_share, enumerated(in_flight), enumerated(memory),
      units_text(run.step.sharding.reshard_after_forward));
}

std::vector<std::string> pipeline_notes(const RunConfig& config, const RunTarget& target,
                                        const ResolvedRun& run) {
  std::vector<std::string> notes;
  if (run.mesh.pipeline == 1) return notes;
  if (std::string note = few_micro_batches_note(config, target, run); !note.empty())
    notes.push_back(std::move(note));
  const int64_t stage = run.mesh.fsdp * run.mesh.tensor;
  if (run.mesh.fsdp > 1 && target.ranks_per_node > 0 && target.ranks_per_node % stage != 0)
    notes.push_back(
        fmt::format("a stage of {} ranks spans nodes of {}: its weights travel between nodes for each "
                    "micro-batch; more stages, or more replicas, make stages that lie inside a node",
                    stage, target.ranks_per_node));
  return notes;
}

}  // namespace ripstop
