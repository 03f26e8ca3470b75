// AdamW over the units of a model against a reference in float64.
#include "train/step/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {
namespace {

const ModelConfig kAdamwModel{.hidden_size = 8,
                              .intermediate_size = 12,
                              .num_hidden_layers = 1,
                              .num_attention_heads = 2,
                              .num_key_value_heads = 2,
                              .vocab_size = 16,
                              .max_position_embeddings = 4,
                              .attention_bias = AttentionBias::kQkvo,
                              .qk_norm = true};

constexpr double kRate = 1e-2;

// A model on one rank, or one rank's part on a mesh, without batches: the test writes the gradients.
struct Optimized {
  explicit Optimized(const AdamWOptions& options, DType compute = DType::kFloat32,
                     const ModelConfig& config = kAdamwModel, const MeshSizes& sizes = {1, 1, 1},
                     const MeshCoordinates& coordinates = {})
      : mesh(DeviceMesh::planned(sizes, coordinates)),
        stream(Device::cpu()),
        model(config, mesh, stream, ledger, {.compute = compute, .sequence_count = 1, .sequence_length = 4}),
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

// Compares all elements of unit `u` with the reference over four updates.
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
      const double decay =
          i >= unit.layout().vector_elements() || options.decay_norms ? options.weight_decay : 0;
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

// AdamW does not decay the first elements of a unit, which are exactly its norms and biases.
TEST(AdamW, TheVectorsOfAUnitAreItsNormsAndBiases) {
  Optimized run({});
  int64_t elements = 0;
  const auto is_vector = [](const std::string& name) {
    return name.find("norm") != std::string::npos || name.ends_with(".bias");
  };
  for (const FsdpUnit& unit : run.model.units()) {
    const int64_t vectors = unit.layout().vector_elements();
    for (const Box& box : unit.layout().boxes(0, vectors)) {
      EXPECT_TRUE(is_vector(box.parameter->name)) << box.parameter->name;
      elements += box.rows * box.columns;
    }
    for (const Box& box : unit.layout().boxes(vectors, unit.master().count()))
      EXPECT_FALSE(is_vector(box.parameter->name)) << box.parameter->name;
  }
  EXPECT_EQ(elements, 3 * 8 + 2 * 4 + 4 * 8) << "norms, two of them in the layer; of heads; biases";
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

// ---- moments in bfloat16

// Vocabulary and feed-forward columns divide by no power of two; with four tensor slices some hold padding.
const ModelConfig kOddModel{.hidden_size = 32,
                            .intermediate_size = 43,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 4,
                            .vocab_size = 67,
                            .max_position_embeddings = 4,
                            .attention_bias = AttentionBias::kQkvo,
                            .qk_norm = true};
const AdamWOptions kRoundedMoments{
    .beta2 = 0.999, .weight_decay = 0.3, .moments = DType::kBFloat16, .seed = 5};

struct Element {
  float weight = 0;
  uint16_t first = 0, second = 0;
  bool operator==(const Element&) const = default;
};
// The states of each logical element, one for each rank with a copy.
using Elements = std::map<std::pair<std::string, int64_t>, std::vector<Element>>;

// Calls body(parameter, logical element, place in the shard) for each element of the shard.
template <class Body>
void each_logical(const FsdpUnit& unit, Body body) {
  const int64_t begin = unit.shard_begin();
  for (const Box& box : unit.layout().boxes(begin, begin + unit.master().count()))
    for (int64_t row = 0; row < box.rows; ++row)
      for (int64_t column = 0; column < box.columns; ++column)
        body(*box.parameter, (box.row + row) * box.parameter->columns + box.column + column,
             box.offset - begin + row * box.stride + column);
}

// Three updates of the rank at `at`, with gradients that depend on the logical element alone.
void update_rank(const AdamWOptions& options, const MeshSizes& mesh, const MeshCoordinates& at,
                 Elements& elements) {
  Optimized run(options, DType::kBFloat16, kOddModel, mesh, at);
  for (int64_t update = 1; update <= 3; ++update) {
    for (FsdpUnit& unit : run.model.units())
      each_logical(unit, [&](const ParameterSpec& p, int64_t element, int64_t place) {
        unit.gradient().as<float>()[place] = gradient_of(element + std::ssize(p.name), update);
      });
    run.step(update, 0.7F, 1);
  }
  for (size_t u = 0; u < run.model.units().size(); ++u) {
    const FsdpUnit& unit = run.model.units()[u];
    const Tensor &first = run.optimizer.first(u), &second = run.optimizer.second(u);
    const auto at_place = [&](int64_t i) {
      return Element{unit.master().as<float>()[i], first.as<BFloat16>()[i].bits,
                     second.as<BFloat16>()[i].bits};
    };
    std::vector<bool> is_padding(static_cast<size_t>(first.count()), true);
    each_logical(unit, [&](const ParameterSpec& p, int64_t element, int64_t place) {
      elements[{p.name, element}].push_back(at_place(place));
      is_padding[static_cast<size_t>(place)] = false;
    });
    for (int64_t i = 0; i < first.count(); ++i)
      if (is_padding[static_cast<size_t>(i)]) {
        EXPECT_EQ(at_place(i), Element{}) << "padding of " << unit.layout().unit().name;
        EXPECT_EQ(unit.compute_copy().as<BFloat16>()[i].bits, 0);
      }
  }
}

Elements update_mesh(const AdamWOptions& options, const MeshSizes& mesh) {
  Elements elements;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
    update_rank(options, mesh, mesh_coordinates(mesh, rank), elements);
  return elements;
}

// The random bits belong to logical elements: with equal gradients every mesh, and every copy of an element,
// has the same weights and moments.
TEST(Bfloat16Moments, AreTheSameBitsOnEveryMesh) {
  const Elements expected = update_mesh(kRoundedMoments, {1, 1, 1});
  for (const MeshSizes& mesh :
       {MeshSizes{1, 2, 1}, MeshSizes{1, 1, 2}, MeshSizes{1, 2, 2}, MeshSizes{1, 3, 1}, MeshSizes{2, 1, 1},
        MeshSizes{1, 1, 4}, MeshSizes{2, 2, 2}, MeshSizes{1, 7, 4}, MeshSizes{1, 5, 1}}) {
    SCOPED_TRACE(mesh.to_text());
    const Elements found = update_mesh(kRoundedMoments, mesh);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [place, states] : found)
      for (const Element& state : states)
        ASSERT_EQ(state, expected.at(place).front()) << place.first << " element " << place.second;
  }
}

TEST(Bfloat16Moments, DependOnTheSeed) {
  AdamWOptions other = kRoundedMoments;
  other.seed = 6;
  const Elements found = update_mesh(kRoundedMoments, {1, 1, 1}), reseeded = update_mesh(other, {1, 1, 1});
  int64_t differs = 0, moved = 0;
  for (const auto& [place, states] : found) {
    const Element &a = states.front(), &b = reseeded.at(place).front();
    differs += a.first != b.first || a.second != b.second;
    moved += a.first != 0;
  }
  EXPECT_GT(moved, 5000);
  EXPECT_GT(differs, moved / 3);
}

// Elements, parameters and updates do not share bits by accident.
TEST(Bfloat16Moments, EveryParameterHasAKeyOfItsOwn) {
  std::set<uint64_t> keys;
  for (const UnitSpec& unit : parameter_table(find_model_preset("llama2-7b")->config))
    for (const ParameterSpec& p : unit.parameters())
      for (const uint64_t seed : {0, 1, 2}) EXPECT_TRUE(keys.insert(moment_key(seed, p.name)).second);
  // A run that resumes with another version of ripstop needs the same bits.
  EXPECT_EQ(moment_key(1, "layers.0.attention.wq.weight"), 9386953849264446916U);
}

// The moments of one element are near those in float64, and the weights as near as with float32 moments.
void expect_near_reference(const AdamWOptions& options, size_t u) {
  Optimized run(options);
  FsdpUnit& unit = run.model.units()[u];
  std::vector<Reference> expected;
  for (const float weight : elements(unit.master())) expected.push_back({.weight = weight});
  for (int64_t update = 1; update <= 4; ++update) {
    for (int64_t i = 0; i < unit.gradient().count(); ++i) {
      unit.gradient().as<float>()[i] = gradient_of(i, update);
      const double decay =
          i >= unit.layout().vector_elements() || options.decay_norms ? options.weight_decay : 0;
      expected[static_cast<size_t>(i)].step(static_cast<double>(gradient_of(i, update)), update, options,
                                            decay);
    }
    run.step(update, 1, 1);
  }
  each_logical(unit, [&](const ParameterSpec& p, int64_t, int64_t i) {
    const Reference& e = expected[static_cast<size_t>(i)];
    const auto first = static_cast<double>(static_cast<float>(run.optimizer.first(u).as<BFloat16>()[i]));
    const auto second = static_cast<double>(static_cast<float>(run.optimizer.second(u).as<BFloat16>()[i]));
    // One rounding changes a value by 2^-7 at most. The first moment may have had larger values before.
    ASSERT_NEAR(second, e.second, 4 * 0x1p-7 * e.second) << p.name << " element " << i;
    ASSERT_NEAR(first, e.first, 4 * 0x1p-7 * std::sqrt(e.second)) << p.name << " element " << i;
    ASSERT_NEAR(unit.master().as<float>()[i], e.weight, 0.05 * kRate) << p.name << " element " << i;
  });
}

TEST(Bfloat16Moments, FollowTheReference) {
  for (const bool decay_norms : {false, true}) {
    AdamWOptions options = kRoundedMoments;
    options.beta2 = 0.95;
    options.decay_norms = decay_norms;
    for (size_t u = 0; u < 3; ++u) expect_near_reference(options, u);
  }
}

TEST(Bfloat16Moments, TakeHalfTheMemory) {
  const auto bytes = [](DType moments) {
    return Optimized({.moments = moments}).ledger.now()[MemoryCategory::kOptimizer];
  };
  int64_t elements = 0;
  Optimized run({});
  for (const FsdpUnit& unit : run.model.units()) elements += unit.master().count();
  EXPECT_EQ(bytes(DType::kFloat32), 8 * elements);
  EXPECT_EQ(bytes(DType::kBFloat16), 4 * elements);
}

}  // namespace
}  // namespace ripstop
