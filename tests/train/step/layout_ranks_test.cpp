// Every mesh trains like one rank. The run on one rank writes the reference losses; the other runs compare
// with them.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/test_files.h"
#include "tests/train/step/mesh_training.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

using mesh_training::MeshTraining;
using mesh_training::Sequence;

constexpr int64_t kSteps = 50, kPositions = 64, kSequences = 8, kVocabulary = 131;

// Nothing divides by eight: 131 ids, 172 feed-forward columns.
ModelConfig model(bool tied, int64_t vocabulary = kVocabulary) {
  return {.hidden_size = 64,
          .intermediate_size = 172,
          .num_hidden_layers = 2,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = vocabulary,
          .max_position_embeddings = kPositions,
          .tie_word_embeddings = tied};
}

/// Text of which a model can learn most: four tokens of five follow from the token before. Documents of
/// several lengths share a sequence. The first tokens of each document have no target.
std::vector<Sequence> sequences_of_step(int64_t step, int64_t vocabulary = kVocabulary) {
  uint64_t state = 0x9E3779B97F4A7C15ULL * static_cast<uint64_t>(step + 1);
  const auto next = [&] {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<int64_t>(state >> 33);
  };
  std::vector<Sequence> sequences(kSequences);
  for (Sequence& sequence : sequences) {
    int64_t token = next() % vocabulary, in_document = 0, length = 10 + next() % 30;
    for (int64_t i = 0; i < kPositions; ++i, ++in_document) {
      if (i == 0 || in_document == length) {
        sequence.document.push_back(static_cast<int32_t>(i));
        in_document = 0;
        length = 10 + next() % 30;
      }
      const int64_t follows = next() % 5 == 0 ? next() % vocabulary : (token * 3 + 7) % vocabulary;
      sequence.token.push_back(static_cast<int32_t>(token));
      sequence.target.push_back(in_document < 3 ? -1 : static_cast<int32_t>(follows));
      sequence.position.push_back(static_cast<int32_t>(in_document));
      token = follows;
    }
  }
  return sequences;
}

StepOptions options(DType compute, int64_t micro = 0) {
  StepOptions step;
  step.sharding = {.compute = compute, .sequence_count = micro, .sequence_length = kPositions};
  return step;
}

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

void expect_equal_losses(const std::vector<double>& found, const std::vector<double>& expected,
                         double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t s = 0; s < found.size(); ++s)
    ASSERT_NEAR(found[s], expected[s], tolerance * expected[s]) << "step " << s + 1;
}

std::string reference_file() {
  const char* path = std::getenv("RIPSTOP_LAYOUT_REFERENCE");
  return path == nullptr ? "" : path;
}

/// The losses of one rank, from the file that the run with one rank wrote.
std::vector<double> reference(const char* what) {
  return nlohmann::json::parse(std::ifstream(reference_file()))[what].get<std::vector<double>>();
}

int64_t ranks() {
  return test_world().communicator().size();
}

/// The meshes to test, of as many ranks as this world has.
std::vector<MeshSizes> meshes() {
  switch (ranks()) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    case 3:
      return {{1, 3, 1}};
    case 4:
      return {{4, 1, 1}, {1, 4, 1}, {1, 1, 4}, {1, 2, 2}, {2, 2, 1}, {2, 1, 2}};
    case 8:
      return {{2, 2, 2}};
    default:
      return {};
  }
}

TEST(LayoutRanks, OneRankWritesTheReference) {
  if (ranks() != 1) return;
  ASSERT_FALSE(reference_file().empty()) << "RIPSTOP_LAYOUT_REFERENCE names the file";
  nlohmann::json out;
  for (const bool tied : {false, true}) {
    const std::vector<double> values = losses_on({1, 1, 1}, model(tied), options(DType::kFloat32));
    EXPECT_LT(values.back(), 0.9 * values.front()) << "it learns";
    out[tied ? "tied" : "untied"] = values;
  }
  out["large vocabulary"] = losses_on({1, 1, 1}, model(false, 32003), options(DType::kFloat32), 4, 32003);
  std::ofstream(reference_file()) << out.dump();
}

TEST(LayoutRanks, Float32AgreesWithOneRank) {
  for (const MeshSizes& mesh : meshes())
    for (const bool tied : {false, true}) {
      SCOPED_TRACE(mesh.to_text() + (tied ? ", tied" : ""));
      expect_equal_losses(losses_on(mesh, model(tied), options(DType::kFloat32)),
                          reference(tied ? "tied" : "untied"), 1e-5);
    }
}

TEST(LayoutRanks, Bfloat16AgreesWithFloat32) {
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    expect_equal_losses(losses_on(mesh, model(true), options(DType::kBFloat16)), reference("tied"), 2e-2);
  }
}

TEST(LayoutRanks, TheSameMeshTwiceIsBitEqual) {
  Device device = test_device();
  device.deterministic = device.kind == DeviceKind::kCuda;  // the CPU is always deterministic
  for (const MeshSizes& mesh : meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
      SCOPED_TRACE(fmt::format("{} {}", mesh.to_text(), to_string(compute)));
      const auto found = [&] {
        return losses_on(mesh, model(true), options(compute), 10, kVocabulary, device);
      };
      EXPECT_EQ(found(), found());
    }
}

TEST(LayoutRanks, AccumulationChangesNothing) {
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    expect_equal_losses(losses_on(mesh, model(true), options(DType::kFloat32, 1)), reference("tied"), 1e-5);
  }
}

TEST(LayoutRanks, KeepingWeightsUnshardedChangesNothing) {
  for (const MeshSizes& mesh : meshes()) {
    SCOPED_TRACE(mesh.to_text());
    StepOptions step = options(DType::kFloat32, 2);
    step.sharding.reshard_after_forward = false;
    expect_equal_losses(losses_on(mesh, model(true), step), reference("tied"), 1e-5);
  }
}

/// What a few steps leave: loss and norm of each, then this rank's weights.
std::vector<double> left_by_steps(const MeshSizes& mesh, bool tied, const StepOptions& step) {
  MeshTraining run(model(tied), step, mesh, kSequences);
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

/// Computing activations again gives the same bits: packed documents, two sequences a micro-batch. Of any two
/// of the other settings every pair of values occurs.
TEST(LayoutRanks, RecomputingChangesNoBit) {
  if (test_device().kind != DeviceKind::kCpu) GTEST_SKIP() << "a GPU repeats to 1e-5";
  for (const MeshSizes& mesh : meshes())
    for (const bool tied : {false, true})
      for (const DType compute : {DType::kFloat32, DType::kBFloat16}) {
        StepOptions step = options(compute, 2);
        step.sharding.reshard_after_forward = tied == (compute == DType::kFloat32);
        step.sharding.overlap_tensor = tied;
        const std::vector<double> expected = left_by_steps(mesh, tied, step);
        for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
          step.sharding.recompute = recompute;
          EXPECT_EQ(left_by_steps(mesh, tied, step), expected) << fmt::format(
              "{} tied {} {} {}", mesh.to_text(), tied, to_string(compute), to_string(recompute));
        }
      }
}

TEST(LayoutRanks, OverlapOfTheTensorAxisChangesNothing) {
  for (const MeshSizes& mesh : meshes()) {
    if (mesh.tensor == 1) continue;
    SCOPED_TRACE(mesh.to_text());
    StepOptions step = options(DType::kFloat32);
    step.sharding.overlap_tensor = true;
    expect_equal_losses(losses_on(mesh, model(true), step), reference("tied"), 1e-5);
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

/// The plan runs the step, and an evaluation, on a device that computes nothing. Its memory and traffic equal
/// those of real ones, to the byte.
TEST(LayoutRanks, PlanEqualsWhatAStepUses) {
  std::vector<Sequence> sequences = sequences_of_step(1);
  for (Sequence& sequence : sequences)  // a target in every row, as the plan assumes
    for (size_t i = 0; i < sequence.target.size(); ++i) sequence.target[i] = sequence.token[i];
  for (const MeshSizes& mesh : meshes())
    for (const DType compute : {DType::kFloat32, DType::kBFloat16})
      for (const Recompute recompute : kRecomputes) {
        SCOPED_TRACE(fmt::format("{} {} {}", mesh.to_text(), to_string(compute), to_string(recompute)));
        StepOptions step = options(compute, 2);
        step.sharding.recompute = recompute;
        MeshTraining run(model(true), step, mesh, kSequences);
        const DeviceMesh::AxisBytes before = run.mesh.bytes_sent();
        run.run(sequences, 1e-3, 1);
        const DeviceMesh::AxisBytes after = run.mesh.bytes_sent();
        run.evaluate(sequences);
        EXPECT_EQ(after.replicate - before.replicate, run.plan.traffic_per_step.replicate);
        EXPECT_EQ(after.fsdp - before.fsdp, run.plan.traffic_per_step.fsdp);
        EXPECT_EQ(after.tensor - before.tensor, run.plan.traffic_per_step.tensor);
        EXPECT_EQ(run.step->arena().peak().bytes, run.plan.arena.bytes);
        EXPECT_EQ(run.ledger.peak().bytes, run.plan.memory.bytes);
      }
}

}  // namespace
}  // namespace ripstop
