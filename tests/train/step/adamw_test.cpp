// AdamW over the units of a model against a reference in float64.
#include "train/step/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

namespace ripstop {
namespace {

const ModelConfig kAdamwModel{.hidden_size = 8,
                              .intermediate_size = 12,
                              .num_hidden_layers = 1,
                              .num_attention_heads = 2,
                              .num_key_value_heads = 2,
                              .vocab_size = 16,
                              .max_position_embeddings = 4};

constexpr double kRate = 1e-2;

// A model on one rank without any batch: the test itself writes the gradients.
struct Optimized {
  explicit Optimized(const AdamWOptions& options, DType compute = DType::kFloat32)
      : mesh(DeviceMesh::planned({.replicate = 1, .fsdp = 1, .tensor = 1}, {})),
        stream(Device::cpu()),
        model(kAdamwModel, mesh, stream, ledger,
              {.compute = compute, .sequence_count = 1, .sequence_length = 4}),
        optimizer(model, options, Device::cpu(), ledger),
        arena(Device::cpu(), ledger, {}) {
    model.initialize(2);
  }

  void step(int64_t update, float factor, float applies) {
    float numbers[2] = {factor, applies};
    Context context = model.context(arena);
    optimizer.step(context, model, kRate, update, {numbers, DType::kFloat32, {2}, Device::cpu()});
  }

  DeviceMesh mesh;
  Stream stream;
  MemoryLedger ledger;
  ShardedTransformer model;
  AdamW optimizer;
  Arena arena;
};

std::vector<float> elements(const Tensor& t) {
  return {t.as<float>(), t.as<float>() + t.count()};
}

// One element in float64. Source: arXiv:1711.05101, algorithm 2, in torch.optim.AdamW's order.
struct Reference {
  double weight = 0, first = 0, second = 0;
  void step(double g, int64_t t, const AdamWOptions& o, double decay) {
    weight -= kRate * decay * weight;
    first = o.beta1 * first + (1 - o.beta1) * g;
    second = o.beta2 * second + (1 - o.beta2) * g * g;
    const double unbiased = first / (1 - std::pow(o.beta1, static_cast<double>(t)));
    const double root = std::sqrt(second / (1 - std::pow(o.beta2, static_cast<double>(t))));
    weight -= kRate * unbiased / (root + o.epsilon);
  }
};

// Gradients of many sizes, tiny and zero ones, too.
float gradient_of(int64_t element, int64_t update) {
  return element % 7 == 0 ? 0.0F
                          : static_cast<float>(std::sin(0.7 * static_cast<double>(element + 3 * update)) *
                                               std::pow(10.0, static_cast<double>(element % 5) - 4));
}

// Four updates of unit `u` alone; all elements against the reference.
void expect_reference(const AdamWOptions& options, size_t u) {
  constexpr float kFactor = 0.25F;
  Optimized run(options);
  FsdpUnit& unit = run.model.units()[u];
  std::vector<Reference> expected;
  for (const float weight : elements(unit.master())) expected.push_back({.weight = weight});
  for (int64_t update = 1; update <= 4; ++update) {
    for (int64_t i = 0; i < unit.gradient().count(); ++i) {
      const float g = gradient_of(i, update);
      unit.gradient().as<float>()[i] = g;
      const double decay = i >= unit.replicated_in_shard() || options.decay_norms ? options.weight_decay : 0;
      expected[static_cast<size_t>(i)].step(kFactor * static_cast<double>(g), update, options, decay);
    }
    run.step(update, kFactor, 1);
  }
  const auto near = [](double value) { return 2e-6 * std::abs(value) + 3e-8; };
  for (int64_t i = 0; i < unit.master().count(); ++i) {
    const Reference& e = expected[static_cast<size_t>(i)];
    ASSERT_NEAR(unit.master().as<float>()[i], e.weight, near(e.weight)) << "unit " << u << " element " << i;
    ASSERT_NEAR(run.optimizer.first(u).as<float>()[i], e.first, near(e.first));
    ASSERT_NEAR(run.optimizer.second(u).as<float>()[i], e.second, 2e-6 * e.second + 1e-15);
  }
}

void expect_reference(const AdamWOptions& options) {
  const size_t units = Optimized(options).model.units().size();
  for (size_t u = 0; u < units; ++u) expect_reference(options, u);
}

TEST(AdamW, EqualsTheReferenceWithoutDecayOfNorms) {
  expect_reference({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.3, .decay_norms = false});
}

TEST(AdamW, EqualsTheReferenceWithDecayOfNorms) {
  expect_reference({.beta1 = 0.8, .beta2 = 0.99, .epsilon = 1e-5, .weight_decay = 0.3, .decay_norms = true});
}

// AdamW does not decay the replicated elements of a unit. They are exactly its norms.
TEST(AdamW, TheVectorsOfAUnitAreItsNorms) {
  Optimized run({});
  int64_t norms = 0;
  for (const FsdpUnit& unit : run.model.units()) {
    const int64_t vectors = unit.replicated_in_shard();
    for (const Box& box : unit.layout().boxes(0, vectors)) {
      EXPECT_NE(box.parameter->name.find("norm"), std::string::npos) << box.parameter->name;
      norms += box.rows * box.columns;
    }
    for (const Box& box : unit.layout().boxes(vectors, unit.master().count()))
      EXPECT_EQ(box.parameter->name.find("norm"), std::string::npos) << box.parameter->name;
  }
  EXPECT_EQ(norms, 3 * kAdamwModel.hidden_size) << "two in the layer, one at the end";
}

// Bias correction: the first update of any gradient moves a weight by the learning rate.
TEST(AdamW, TheFirstUpdateMovesByTheLearningRate) {
  Optimized run({.weight_decay = 0});
  FsdpUnit& unit = run.model.units().front();
  const std::vector<float> before = elements(unit.master());
  std::fill_n(unit.gradient().as<float>(), unit.gradient().count(), 1e-3F);
  run.step(1, 1, 1);
  const std::vector<float> after = elements(unit.master());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i] - after[i], kRate, 1e-4 * kRate);
}

TEST(AdamW, TheComputeCopyIsTheMasterRounded) {
  Optimized run({}, DType::kBFloat16);
  for (FsdpUnit& unit : run.model.units())
    for (int64_t i = 0; i < unit.gradient().count(); ++i) unit.gradient().as<float>()[i] = gradient_of(i, 1);
  run.step(1, 1, 1);
  for (const FsdpUnit& unit : run.model.units()) {
    ASSERT_EQ(unit.compute_copy().count(), unit.master().count());
    const auto* copy = static_cast<const uint16_t*>(unit.compute_copy().data);
    for (int64_t i = 0; i < unit.master().count(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(unit.master().as<float>()[i]);
      const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);  // to nearest, ties to even
      ASSERT_EQ(copy[i], rounded >> 16) << "element " << i;
    }
  }
}

TEST(AdamW, ASkippedUpdateChangesNothing) {
  Optimized run({});
  FsdpUnit& unit = run.model.units().front();
  std::fill_n(unit.gradient().as<float>(), unit.gradient().count(), 1.0F);
  run.step(1, 1, 1);
  const auto state = [&] {
    return std::vector{elements(unit.master()), elements(run.optimizer.first(0)),
                       elements(run.optimizer.second(0))};
  };
  const auto before = state();
  run.step(2, 0, 0);
  EXPECT_EQ(state(), before);
}

}  // namespace
}  // namespace ripstop
