// Every mesh trains like one rank. The run on one rank writes the reference losses; the other runs compare
// with them.
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_files.h"
#include "tests/train/step/layout_model.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

using mesh_training::MeshTraining;
using mesh_training::Sequence;

using layouts::expect_equal_losses;
using layouts::kFewSteps;
using layouts::kSequences;
using layouts::kSteps;
using layouts::kVocabulary;
using layouts::meshes;
using layouts::model;
using layouts::model_with_vectors;
using layouts::options;
using layouts::ranks;
using layouts::reference;
using layouts::reference_file;
using layouts::sequences_of_step;

std::vector<double> losses(MeshTraining& run, int64_t steps = kSteps, int64_t vocabulary = kVocabulary) {
  const ScheduleSection schedule{.kind = ScheduleKind::kCosine, .warmup_steps = 20, .minimum_ratio = 0.1};
  run.step->model().initialize(7);
  std::vector<double> values;
  for (int64_t s = 1; s <= steps; ++s)
    values.push_back(
        run.run(sequences_of_step(s, vocabulary), 3e-3 * learning_rate_factor(schedule, s, kSteps), s).loss);
  return values;
}

std::vector<double> losses_on(const MeshSizes& mesh, const ModelConfig& config, const StepOptions& step,
                              int64_t steps = kSteps, int64_t vocabulary = kVocabulary,
                              const Device& device = test_device()) {
  MeshTraining run(config, step, mesh, kSequences, device);
  return losses(run, steps, vocabulary);
}

/// The models whose losses over all steps on one rank are in the reference.
const std::vector<std::pair<const char*, ModelConfig>>& models() {
  static const std::vector<std::pair<const char*, ModelConfig>> all{
      {"untied", model(false)}, {"tied", model(true)}, {"vectors", model_with_vectors()}};
  return all;
}

TEST(LayoutRanks, OneRankWritesTheReference) {
  if (ranks() != 1) return;
  ASSERT_FALSE(reference_file().empty()) << "RIPSTOP_LAYOUT_REFERENCE names the file";
  nlohmann::json out;
  for (const auto& [name, config] : models()) {
    const std::vector<double> values = losses_on({1, 1, 1}, config, options(DType::kFloat32));
    EXPECT_LT(values.back(), 0.9 * values.front()) << "it learns";
    out[name] = values;
  }
  out["large vocabulary"] = losses_on({1, 1, 1}, model(false, 32003), options(DType::kFloat32), 4, 32003);
  std::ofstream(reference_file()) << out.dump();
}

TEST(LayoutRanks, Float32AgreesWithOneRank) {
  for (const MeshSizes& mesh : meshes())
    for (const auto& [name, config] : models()) {
      SCOPED_TRACE(mesh.to_text() + ", " + name);
      // The untied model takes PyTorch's fifty steps below.
      const int64_t steps = config.qk_norm ? kSteps : kFewSteps;
      expect_equal_losses(losses_on(mesh, config, options(DType::kFloat32), steps), reference(name), 1e-5);
    }
}

TEST(LayoutRanks, Bfloat16AgreesWithFloat32) {
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    expect_equal_losses(losses_on(mesh, model(true), options(DType::kBFloat16), layouts::kMoreSteps),
                        reference("tied"), 2e-2);
  }
}

TEST(LayoutRanks, TheSameMeshTwiceIsBitEqual) {
  Device device = test_device();
  device.deterministic = device.kind == DeviceKind::kCuda;  // the CPU is always deterministic
  for (const MeshSizes& mesh : meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", mesh.to_text(), to_string(compute)));
      const auto found = [&] {
        return losses_on(mesh, model(true), options(compute), kFewSteps, kVocabulary, device);
      };
      EXPECT_EQ(found(), found());
    }
}

TEST(LayoutRanks, AccumulationChangesNothing) {
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    expect_equal_losses(losses_on(mesh, model(true), options(DType::kFloat32, 1), kFewSteps),
                        reference("tied"), 1e-5);
  }
}

TEST(LayoutRanks, KeepingWeightsUnshardedChangesNothing) {
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    StepOptions step = options(DType::kFloat32, 2);
    step.sharding.reshard_after_forward = false;
    expect_equal_losses(losses_on(mesh, model(true), step, kFewSteps), reference("tied"), 1e-5);
  }
}

/// The results of a few steps: loss and norm of each, then this rank's weights.
std::vector<double> left_by_steps(const MeshSizes& mesh, const ModelConfig& config, const StepOptions& step) {
  MeshTraining run(config, step, mesh, kSequences);
  run.step->model().initialize(7);
  std::vector<double> left;
  for (int64_t s = 1; s <= 2; ++s) {
    const StepResult result = run.run(sequences_of_step(s), 3e-3, s);
    left.push_back(result.loss);
    left.push_back(result.gradient_norm);
  }
  for (const FsdpUnit& unit : run.step->model().units()) {
    std::vector<float> weights(static_cast<size_t>(unit.master().count()));
    copy_bytes(run.stream, weights.data(), unit.master().data, unit.master().bytes());
    run.stream.synchronize();
    left.insert(left.end(), weights.begin(), weights.end());
  }
  return left;
}

/// Recomputation gives the same bits, with packed documents and two sequences a micro-batch. Every pair of
/// values of any two other settings occurs.
TEST(LayoutRanks, RecomputingChangesNoBit) {
  if (test_device().kind != DeviceKind::kCpu) GTEST_SKIP() << "a GPU repeats to 1e-5";
  for (const MeshSizes& mesh : meshes())
    for (const auto& [name, config] : models())
      for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
        const bool tied = config.tie_word_embeddings;
        StepOptions step = options(compute, 2);
        step.sharding.reshard_after_forward = tied == (compute == DType::kFloat32);
        step.sharding.overlap_tensor = tied;
        const std::vector<double> expected = left_by_steps(mesh, config, step);
        for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
          step.sharding.recompute = recompute;
          EXPECT_EQ(left_by_steps(mesh, config, step), expected)
              << fmt::format("{} {} {} {}", mesh.to_text(), name, to_string(compute), to_string(recompute));
        }
      }
}

TEST(LayoutRanks, OverlapOfTheTensorAxisChangesNothing) {
  for (const MeshSizes& mesh : meshes()) {
    if (mesh.tensor == 1) continue;
    SCOPED_TRACE(mesh.to_text());
    StepOptions step = options(DType::kFloat32);
    step.sharding.overlap_tensor = true;
    expect_equal_losses(losses_on(mesh, model(true), step, kFewSteps), reference("tied"), 1e-5);
  }
}

TEST(LayoutRanks, VocabularyThatDoesNotDivide) {
  for (const MeshSizes& mesh : meshes()) {
    if (mesh.tensor != 4) continue;
    expect_equal_losses(losses_on(mesh, model(false, 32003), options(DType::kFloat32), 4, 32003),
                        reference("large vocabulary"), 1e-5);
  }
}

/// tests/golden/make_pytorch_steps.py trains the same model on the same sequences, with the same schedule and
/// clipping.
TEST(LayoutRanks, FiftyStepsOfPyTorch) {
  const auto golden = nlohmann::json::parse(std::ifstream(golden_file("pytorch_steps.json")));
  const ScheduleSection schedule{.kind = ScheduleKind::kCosine, .warmup_steps = 20, .minimum_ratio = 0.1};
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    MeshTraining run(model(false), options(DType::kFloat32), mesh, kSequences);
    mesh_training::fill_by_rule(run);
    for (int64_t s = 1; s <= kSteps; ++s) {
      const StepResult result =
          run.run(sequences_of_step(s), 3e-3 * learning_rate_factor(schedule, s, kSteps), s);
      const double loss = golden["losses"][static_cast<size_t>(s - 1)];
      const double norm = golden["gradient_norms"][static_cast<size_t>(s - 1)];
      ASSERT_NEAR(result.loss, loss, 1e-4 * loss) << "step " << s;
      ASSERT_NEAR(result.gradient_norm, norm, 2e-3 * norm) << "step " << s;
    }
  }
}

/// The plan runs the step and an evaluation on kMeta. Its memory and traffic equal the real ones, to the
/// byte.
TEST(LayoutRanks, PlanEqualsWhatAStepUses) {
  std::vector<Sequence> sequences = sequences_of_step(1);
  for (Sequence& sequence : sequences)  // a target in every row, as the plan assumes
    for (size_t i = 0; i < sequence.target.size(); ++i) sequence.target[i] = sequence.token[i];
  for (const MeshSizes& mesh : meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16})
      for (size_t m = 0; m < 2 * kRecomputes.size(); ++m) {
        const Recompute recompute = kRecomputes[m / 2];
        const ModelConfig config = m % 2 == 0 ? model(true) : model_with_vectors();
        SCOPED_TRACE(fmt::format("{} {} {} {}", mesh.to_text(), to_string(compute), to_string(recompute),
                                 m % 2 == 0 ? "" : "with vectors"));
        StepOptions step = options(compute, 2);
        step.sharding.recompute = recompute;
        MeshTraining run(config, step, mesh, kSequences);
        const AxisBytes before = run.mesh.bytes_sent();
        run.run(sequences, 1e-3, 1);
        const AxisBytes after = run.mesh.bytes_sent();
        run.evaluate(sequences);
        EXPECT_EQ(after - before, run.plan.traffic_per_step);
        EXPECT_EQ(run.step->arena().peak().bytes, run.plan.arena.bytes);
        EXPECT_EQ(run.ledger.peak().bytes, run.plan.memory.bytes);
      }
}

}  // namespace
}  // namespace ripstop
