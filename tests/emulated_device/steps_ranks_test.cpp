// Three training steps on emulated GPUs, on every mesh of the ranks at hand, under many orders of work. Every
// order gives the same bits, and the losses are those of the CPU.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/emulated_device/scheduler.h"
#include "tests/train/step/mesh_training.h"

namespace ripstop {
namespace {

using mesh_training::DealtSequences;
using mesh_training::MeshTraining;
using mesh_training::Sequence;

constexpr int64_t kPositions = 32, kSequences = 4, kSteps = 3;

// From $RIPSTOP_EMULATED_SEEDS.
uint64_t seeds() {
  const char* text = std::getenv("RIPSTOP_EMULATED_SEEDS");
  return text == nullptr ? 2 : std::strtoull(text, nullptr, 10);
}

struct Variant {
  const char* name;
  DType compute, reduce;
  bool tied = false, overlap_tensor = false, reshard = true;
};
constexpr Variant kVariants[] = {
    {"float32", DType::kFloat32, DType::kFloat32},
    {"float32, tied, overlapping", DType::kFloat32, DType::kBFloat16, true, true},
    {"bfloat16", DType::kBFloat16, DType::kFloat32},
    {"bfloat16, overlapping, not resharded", DType::kBFloat16, DType::kBFloat16, false, true, false},
};

ModelConfig model(const Variant& variant) {
  return {.hidden_size = 64,
          .intermediate_size = 88,
          .num_hidden_layers = 2,
          .num_attention_heads = 8,
          .num_key_value_heads = 4,
          .vocab_size = 131,
          .max_position_embeddings = kPositions,
          .tie_word_embeddings = variant.tied};
}

// Two documents in most sequences, targets for most tokens.
std::vector<Sequence> sequences_of_step(int64_t step) {
  std::vector<Sequence> sequences(kSequences);
  for (int64_t p = 0; p < kSequences; ++p) {
    Sequence& sequence = sequences[static_cast<size_t>(p)];
    const auto cut = static_cast<int32_t>((5 * p + 3 * step) % kPositions);
    sequence.document = cut == 0 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, cut};
    auto token = static_cast<int32_t>((13 * p + 29 * step) % 131);
    for (int32_t i = 0; i < kPositions; ++i) {
      const int32_t next = (token * 3 + 7) % 131;
      sequence.token.push_back(token);
      sequence.target.push_back(i % 5 == 0 ? -1 : next);
      sequence.position.push_back(i < cut ? i : i - cut);
      token = next;
    }
  }
  return sequences;
}

// Losses and gradient norms of the steps, then the loss of a validation.
std::vector<double> train(const Variant& variant, const MeshSizes& mesh, const Device& device) {
  StepOptions options;
  options.sharding = {.compute = variant.compute,
                      .reduce = variant.reduce,
                      .sequence_count = 1,
                      .sequence_length = kPositions,
                      .reshard_after_forward = variant.reshard,
                      .overlap_tensor = variant.overlap_tensor};
  MeshTraining run(model(variant), options, mesh, kSequences, device);
  run.step->model().initialize(7);
  std::vector<double> values;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const StepResult result = run.run(sequences_of_step(step), 1e-3, step);
    values.push_back(result.loss);
    values.push_back(result.gradient_norm);
  }
  values.push_back(run.evaluate(sequences_of_step(0)).mean());
  return values;
}

TEST(EmulatedSteps, AreTheSameInEveryOrderAndThoseOfTheCpu) {
  for (const MeshSizes& mesh : mesh_training::meshes_of(test_world().communicator().size(), {1, 2, 4}))
    for (const Variant& variant : kVariants) {
      SCOPED_TRACE(mesh.to_text() + ", " + variant.name);
      const std::vector<double> expected = train(variant, mesh, Device::cpu());
      const double allowed = variant.compute == DType::kBFloat16  ? 2e-2
                             : variant.reduce == DType::kBFloat16 ? 1e-2
                                                                  : 1e-5;
      std::vector<double> first;
      for (uint64_t seed = 1; seed <= seeds(); ++seed) {
        emulated::Scheduler::instance().set_seed(seed);
        const std::vector<double> found = train(variant, mesh, test_device());
        if (seed == 1) first = found;
        ASSERT_EQ(found, first) << "seed " << seed;
        for (size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], expected[i], allowed * expected[i]) << i;
      }
    }
}

}  // namespace
}  // namespace ripstop
