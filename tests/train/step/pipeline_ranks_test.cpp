// A pipeline has the bits of the same mesh without one, whose ranks all have all layers.
#include <cstring>
#include <map>

#include "tests/train/step/layout_model.h"
#include "train/run/long_step.h"

namespace ripstop {
namespace {

using layouts::ranks;
using layouts::sequences_of_step;
using mesh_training::meshes_with_stages;
using mesh_training::MeshTraining;

std::map<std::string, std::vector<float>> weights_of(MeshTraining& run) {
  std::map<std::string, std::vector<float>> all;
  for (const FsdpUnit& unit : run.step->model().trained_units()) {
    std::vector<float>& weights = all[unit.layout().unit().name];
    weights.resize(static_cast<size_t>(unit.master().count()));
    copy_bytes(run.stream, weights.data(), unit.master().data, unit.master().bytes());
  }
  run.stream.synchronize();
  return all;
}

/// Results of a few steps: losses, gradient norms and trained weights.
struct Left {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;  ///< this rank's shard of each unit
  LossSum evaluation;
};

Left left_by(MeshTraining& run) {
  mesh_training::initialize_with_adapters(run);
  Left left;
  for (int64_t s = 1; s <= 3; ++s) {
    const StepResult result = run.run(sequences_of_step(s), 3e-3, s);
    left.losses.push_back(result.loss);
    left.norms.push_back(result.gradient_norm);
  }
  left.evaluation = run.evaluate(sequences_of_step(4));
  left.weights = weights_of(run);
  return left;
}

/// The mesh of this rank if it were without the pipeline: each stage makes one of its own.
DeviceMesh without_pipeline(const DeviceMesh& mesh) {
  MeshSizes sizes = mesh.sizes();
  MeshCoordinates at = mesh.coordinates();
  const int64_t stage = at.pipeline;
  sizes.pipeline = 1;
  at.pipeline = 0;
  const auto part = test_world().communicator().split(stage, sizes.rank_of(at), "part");
  return DeviceMesh(sizes, at, [&](const MeshGroup& group) {
    std::unique_ptr<Communicator> made = part->split(group.color, group.rank, group.name);
    return group.size > 1 ? std::move(made) : make_self_communicator(group.name);
  });
}

/// The first and the last stage hold a tied table both, with the same weights and moments.
void expect_equal_holders(MeshTraining& run) {
  Communicator& axis = run.mesh.pipeline();
  const AdamW& optimizer = run.step->optimizer();
  const bool is_first = axis.rank() == 0, holds = is_first || axis.rank() == axis.size() - 1;
  const int64_t other = is_first ? axis.size() - 1 : 0;
  for (const Tensor& own :
       {run.step->model().units().front().master(), optimizer.first(0), optimizer.second(0)}) {
    std::vector<std::byte> others(static_cast<size_t>(own.bytes()));
    const Tensor received{others.data(), own.dtype, own.shape, own.device};
    const Exchange exchange{.send = own, .to = other, .receive = received, .from = other};
    axis.start_exchanges(run.stream, {&exchange, holds ? 1U : 0U}).wait();
    EXPECT_TRUE(!holds || std::memcmp(others.data(), own.data, others.size()) == 0);
  }
}

void expect_no_bit_differs(const MeshSizes& sizes, const ModelConfig& config, StepOptions step) {
  SCOPED_TRACE(sizes.to_text());
  MeshTraining pipeline(config, step, sizes, layouts::kSequences);
  step.sharding.stage_layers.clear();
  MeshTraining alone(config, step, without_pipeline(pipeline.mesh), layouts::kSequences);
  const Left found = left_by(pipeline), expected = left_by(alone);
  const bool tied = config.tie_word_embeddings && !step.sharding.lora.any();
  for (size_t s = 0; s < found.losses.size(); ++s) {
    EXPECT_NEAR(found.losses[s], expected.losses[s], (tied ? 1e-5 : 0) * expected.losses[s])
        << "step " << s + 1;
    EXPECT_NEAR(found.norms[s], expected.norms[s], (tied ? 1e-4 : 1e-12) * expected.norms[s]);
  }
  EXPECT_NEAR(found.evaluation.loss, expected.evaluation.loss, (tied ? 1e-5 : 0) * expected.evaluation.loss);
  EXPECT_EQ(found.evaluation.target_count, expected.evaluation.target_count);
  if (tied) return expect_equal_holders(pipeline);
  for (const auto& [name, weights] : found.weights) EXPECT_EQ(weights, expected.weights.at(name)) << name;
}

ModelConfig model_of(int64_t layers, bool tied = false) {
  ModelConfig config = layouts::model(tied);
  config.num_hidden_layers = layers;
  return config;
}

TEST(PipelineRanks, NoBitDiffers) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks()))
    for (const DType compute : {DType::kFloat32, DType::kBFloat16})
      for (const bool tied : {false, true})
        for (const int64_t micro : {1, 4}) {
          SCOPED_TRACE(fmt::format("{} tied {} micro {}", to_string(compute), tied, micro));
          StepOptions step = layouts::options(compute, micro);
          step.sharding.reshard_after_forward = tied;
          expect_no_bit_differs(sizes, model_of(sizes.pipeline + 1, tied), step);
        }
}

TEST(PipelineRanks, NoBitDiffersWithAnyRecomputation) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks()))
    for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
      SCOPED_TRACE(to_string(recompute));
      StepOptions step = layouts::options(DType::kBFloat16, 2);
      step.sharding.recompute = recompute;
      expect_no_bit_differs(sizes, model_of(9), step);
    }
}

TEST(PipelineRanks, NoBitDiffersWithAnyNumberInFlight) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks()))
    for (const double ahead : {0.0, 0.5}) {
      SCOPED_TRACE(ahead);
      StepOptions step = layouts::options(DType::kFloat32, 1);
      step.sharding.pipeline_ahead = ahead;
      expect_no_bit_differs(sizes, model_of(8), step);
    }
}

/// A stop on one rank ends a step early on all, at the same micro-batch, and the step can be made again.
void expect_step_is_given_up(const MeshSizes& sizes, const StepOptions& step) {
  SCOPED_TRACE(fmt::format("{}, resharded {}", sizes.to_text(), step.sharding.reshard_after_forward));
  const int64_t many = 8 * ranks();  // all but the first few are empty
  MeshTraining stopped(model_of(sizes.pipeline + 1), step, sizes, many);
  MeshTraining unbroken(model_of(sizes.pipeline + 1), step, sizes, many);
  Communicator& world = test_world().communicator();
  LongStep long_step(world, sizes.pipeline, {.vote_seconds = 0, .most_seconds = 0});
  const auto gives_up = [&](int64_t done) {
    return long_step.gives_up(
        done, stopped.micro_batches, [&] { return world.rank() + 1 == world.size() && done >= 3; },
        [&] { stopped.stream.synchronize(); });
  };
  for (MeshTraining* run : {&stopped, &unbroken}) mesh_training::initialize_with_adapters(*run);
  for (int64_t s = 1; s <= 2; ++s) {
    long_step.begin();
    EXPECT_TRUE(stopped.run(sequences_of_step(s), 3e-3, {s}, {.gives_up = gives_up}).given_up);
    // The votes began after micro-batches 1 and 2 + P; without a pipeline, after 1, 2 and 3.
    const int64_t given_up_after = sizes.pipeline == 1 ? 3 : 2 + 2 * sizes.pipeline;
    EXPECT_EQ(stopped.begun, shortest_step(sizes.pipeline, given_up_after));
    const StepResult again = stopped.run(sequences_of_step(s), 3e-3, s);
    const StepResult expected = unbroken.run(sequences_of_step(s), 3e-3, s);
    EXPECT_EQ(again.loss, expected.loss) << "step " << s;
    EXPECT_EQ(again.gradient_norm, expected.gradient_norm) << "step " << s;
  }
  EXPECT_EQ(weights_of(stopped), weights_of(unbroken));
}

TEST(PipelineRanks, AStepThatIsGivenUpLeavesNoTrace) {
  std::vector<MeshSizes> meshes = meshes_with_stages(ranks());
  meshes.push_back({.fsdp = ranks()});
  for (const MeshSizes& sizes : meshes)
    for (const bool reshards : {true, false}) {
      StepOptions step = layouts::options(DType::kBFloat16, 1);
      step.sharding.reshard_after_forward = reshards;
      expect_step_is_given_up(sizes, step);
    }
}

/// The options of steps of whole turns.
StepOptions two_stages_on_each(const MeshSizes& sizes, DType compute) {
  StepOptions step = layouts::options(compute, sizes.pipeline == 3 ? 3 : 1);
  step.sharding.stages_per_rank = 2;
  return step;
}

TEST(PipelineRanks, NoBitDiffersWithTwoStagesOnEachRank) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks()))
    for (const Recompute recompute : kRecomputes) {
      const bool tied = recompute == Recompute::kSelective;
      SCOPED_TRACE(to_string(recompute));
      StepOptions step = two_stages_on_each(sizes, tied ? DType::kFloat32 : DType::kBFloat16);
      step.sharding.recompute = recompute;
      step.sharding.reshard_after_forward = recompute != Recompute::kNone;
      expect_no_bit_differs(sizes, model_of(2 * sizes.pipeline + 1, tied), step);
    }
}

/// The head is alone in the last stage, whose rank has another one.
TEST(PipelineRanks, NoBitDiffersWithAdaptersInTwoStagesOnEachRank) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks())) {
    StepOptions step = two_stages_on_each(sizes, DType::kFloat32);
    step.sharding.stage_layers.assign(static_cast<size_t>(2 * sizes.pipeline), 1);
    step.sharding.stage_layers.front() = 2;
    step.sharding.stage_layers.back() = 0;
    step.sharding.lora = {.rank = 4, .alpha = 8, .dropout = 0.1};
    expect_no_bit_differs(sizes, model_of(2 * sizes.pipeline), step);
  }
}

/// Dropout's bits depend on sequences, not on stages.
TEST(PipelineRanks, NoBitDiffersWithAdapters) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks()))
    for (const bool tied : {false, true}) {
      StepOptions step = layouts::options(DType::kBFloat16, 1);
      step.sharding.lora = {.rank = 4, .alpha = 8, .dropout = 0.1};
      expect_no_bit_differs(sizes, model_of(8, tied), step);
    }
}

/// A stage may have the head alone, and then, with adapters, nothing to train.
TEST(PipelineRanks, AStageOfTheHeadAlone) {
  for (const MeshSizes& sizes : meshes_with_stages(ranks())) {
    StepOptions step = layouts::options(DType::kFloat32, 1);
    step.sharding.stage_layers.assign(static_cast<size_t>(sizes.pipeline), 1);
    step.sharding.stage_layers.back() = 0;
    expect_no_bit_differs(sizes, model_of(sizes.pipeline - 1), step);
    step.sharding.lora = {.rank = 4, .alpha = 8};
    expect_no_bit_differs(sizes, model_of(sizes.pipeline - 1), step);
  }
}

}  // namespace
}  // namespace ripstop
