// The plan of each stage of a pipeline is what a real step on real ranks allocates and sends.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/train/step/layout_model.h"

namespace ripstop {
namespace {

using layouts::kSequences;
using mesh_training::MeshTraining;
using mesh_training::Sequence;

/// A pipeline on the ranks of this world. Empty layers: as split_stages() cuts the model.
struct Piped {
  MeshSizes mesh;
  std::vector<int64_t> layers = {};
  int64_t stages_per_rank = 1;
};

std::vector<Piped> pipelines() {
  switch (layouts::ranks()) {
    case 2:
      return {{{1, 1, 1, 2}}, {{1, 1, 1, 2}, {4, 0}}, {{1, 1, 1, 2}, {2, 1, 1, 0}, 2}};
    case 4:
      return {{{1, 2, 1, 2}},
              {{1, 1, 2, 2}},
              {{2, 1, 1, 2}},
              {{1, 1, 1, 4}},
              {{1, 1, 1, 4}, {1, 2, 1, 0}},
              {{2, 1, 1, 2}, {1, 1, 1, 1}, 2}};
    default:
      return {};
  }
}

/// Runs a step of as many micro-batches as a data rank has sequences, and an evaluation.
void expect_planned(const Piped& piped, const ModelConfig& config, StepOptions step) {
  std::vector<Sequence> sequences = layouts::sequences_of_step(1);
  for (Sequence& sequence : sequences) sequence.target = sequence.token;  // in every row, as the plan assumes
  step.sharding.stage_layers = piped.layers;
  step.sharding.stages_per_rank = piped.stages_per_rank;
  MeshTraining run(config, step, piped.mesh, kSequences);
  run.step->model().initialize(7);
  run.run(sequences, 1e-3, 1);  // only the first step gathers frozen weights that stay gathered
  const AxisBytes before = run.mesh.bytes_sent();
  run.run(sequences, 1e-3, 2);
  const AxisBytes sent = run.mesh.bytes_sent() - before;
  run.evaluate(sequences);
  for (const MeshAxis axis : kMeshAxes)
    EXPECT_EQ(sent[axis], run.plan.traffic_per_step[axis]) << to_string(axis);
  EXPECT_EQ(run.step->arena().peak().bytes, run.plan.arena.bytes);
  EXPECT_EQ(run.ledger.peak().bytes, run.plan.memory.bytes);
}

TEST(PipelinePlanRanks, EqualsWhatAStepUses) {
  ModelConfig config = layouts::model(false);
  config.num_hidden_layers = 4;
  for (const Piped& piped : pipelines())
    for (const bool tied : {false, true})
      for (const bool lora : {false, true})
        for (const Recompute recompute : kRecomputes) {
          SCOPED_TRACE(fmt::format("{}, layers {}, tied {}, lora {}, {}", piped.mesh.to_text(),
                                   fmt::join(piped.layers, " "), tied, lora, to_string(recompute)));
          config.tie_word_embeddings = tied;
          StepOptions step = layouts::options(tied ? DType::kFloat32 : DType::kBFloat16, 1);
          step.sharding.recompute = recompute;
          step.sharding.reshard_after_forward = tied == lora;
          step.sharding.pipeline_ahead = tied ? 1 : 0;
          if (lora) step.sharding.lora = {.rank = 2, .alpha = 4};
          expect_planned(piped, config, step);
        }
}

}  // namespace
}  // namespace ripstop
