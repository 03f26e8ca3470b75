// Tests the adapters of every kind of matrix against finite differences, beside frozen weights.
#include "model/adapters.h"

#include <gtest/gtest.h>

#include "model/transformer.h"
#include "tests/expect_error.h"
#include "tests/model/layer_fixture.h"

namespace ripstop::adapters {
namespace {

using layers::dot;
using layers::expect_gradient;
using layers::LayerFixture;

constexpr int64_t kRows = 16, kHidden = 16, kRank = 3;

// Grouped heads, so that q, k and v have different numbers of rows.
const ModelConfig kConfig{.hidden_size = kHidden,
                          .intermediate_size = 24,
                          .num_hidden_layers = 1,
                          .num_attention_heads = 4,
                          .num_key_value_heads = 2,
                          .vocab_size = 13,
                          .max_position_embeddings = 8,
                          .attention_bias = AttentionBias::kQkvo,
                          .qk_norm = true};

LoraConfig lora_of(std::initializer_list<LoraTarget> targets, double dropout = 0) {
  LoraConfig lora{.rank = kRank, .alpha = 4, .dropout = dropout, .targets = {}};
  for (const LoraTarget target : targets) lora.targets[static_cast<size_t>(target)] = true;
  return lora;
}

constexpr auto kAll = {LoraTarget::kQuery, LoraTarget::kKey, LoraTarget::kValue, LoraTarget::kOutput,
                       LoraTarget::kGate,  LoraTarget::kUp,  LoraTarget::kDown};

class AdaptersTest : public ::testing::Test, public LayerFixture {
 protected:
  AdaptersTest()
      : turn_(angle()),
        rows_(batch(kConfig.vocab_size)),
        sum_(random({kRows, kHidden})),
        branch_(random({kRows, kHidden})),
        weights_(random({kRows, kHidden})) {}

  Tensor angle() {
    Transformer model(kConfig, {}, 1, 0, 8, stream, ledger);
    const Tensor copy = zeros(model.angle().shape);
    copy_bytes(stream, copy.data, model.angle().data, copy.bytes());
    return copy;
  }

  Block frozen_block(const LoraConfig& lora) {
    Block block(kConfig, 1);
    const UnitSpec unit = parameter_table(kConfig)[1];
    const std::vector<Parameter*> base = block.parameters();
    for (size_t t = 0; t < base.size(); ++t) {
      const int64_t rows = unit.tensors[t].slice_rows(1), columns = unit.tensors[t].slice_columns(1);
      base[t]->value = unit.tensors[t].parts.front().vector ? random({rows * columns}, 0.2, 1.0)
                                                            : random({rows, columns}, 0.3);
    }
    block.set_adapters(unit, adapter_specs(kConfig, lora), lora, 1);
    names_.clear();
    const UnitSpec adapters = adapter_table(kConfig, lora).front();
    const std::vector<Parameter*> parameters = block.adapter_parameters();
    EXPECT_EQ(parameters.size(), adapters.tensors.size());
    for (size_t t = 0; t < parameters.size(); ++t) {
      fill(*parameters[t], {adapters.tensors[t].slice_rows(1), adapters.tensors[t].slice_columns(1)}, 0.2);
      names_.push_back(adapters.tensors[t].parts.front().name);
    }
    return block;
  }

  double loss(const Block& block) {
    Frame frame(arena);
    Residual residual{.sum = sum_, .branch = context.arena.allocate(DType::kFloat32, branch_.shape)};
    copy_bytes(stream, residual.branch.data, branch_.data, branch_.bytes());
    block.forward(context, rows_, turn_, residual, block.allocate(context, kRows, DType::kFloat32));
    return dot(residual.sum, weights_) + dot(residual.branch, weights_);
  }

  /// Forward and backward. Returns the gradient by the block's input.
  Tensor pass(const Block& block, Recompute recompute, InputGradient input) {
    Frame frame(arena);
    const Tensor dresidual = zeros({kRows, kHidden});
    copy_bytes(stream, dresidual.data, weights_.data, weights_.bytes());
    Residual residual = layers::allocate_residual(context, kRows, kHidden, DType::kFloat32, recompute);
    residual.sum = sum_;
    copy_bytes(stream, residual.branch.data, branch_.data, branch_.bytes());
    const Block::Saved saved = block.allocate(context, kRows, DType::kFloat32, recompute);
    block.forward(context, rows_, turn_, residual, saved);
    block.backward(context, rows_, turn_, saved, dresidual, input);
    return dresidual;
  }

  static std::vector<float> gradients(Block& block) {
    std::vector<float> all;
    for (const Parameter* p : block.adapter_parameters())
      all.insert(all.end(), p->gradient.as<float>(), p->gradient.as<float>() + p->gradient.count());
    return all;
  }

  void expect_gradients(const LoraConfig& lora) {
    Block block = frozen_block(lora);
    const Tensor dresidual = pass(block, Recompute::kNone, InputGradient::kNeeded);
    const auto value = [&] { return loss(block); };
    expect_gradient(sum_, dresidual, value, "sum");
    const std::vector<Parameter*> parameters = block.adapter_parameters();
    for (size_t t = 0; t < parameters.size(); ++t)
      expect_gradient(parameters[t]->value, parameters[t]->gradient, value, names_[t]);
    // The same bits for every Recompute, and with and without an input gradient.
    const std::vector<float> expected = gradients(block);
    for (const Recompute recompute : kRecomputes)
      for (const InputGradient input : {InputGradient::kNeeded, InputGradient::kNot}) {
        for (const Parameter* p : parameters) std::fill_n(p->gradient.as<float>(), p->gradient.count(), 1.0F);
        pass(block, recompute, input);
        EXPECT_EQ(gradients(block), expected) << to_string(recompute);
      }
    // Another micro-batch adds to the gradients.
    for (Parameter* p : block.adapter_parameters()) p->accumulate = Accumulate::kYes;
    pass(block, Recompute::kNone, InputGradient::kNot);
    const std::vector<float> twice = gradients(block);
    for (size_t i = 0; i < twice.size(); ++i)
      ASSERT_NEAR(twice[i], 2 * expected[i], 1e-5F * (1 + std::abs(expected[i])));
  }

  Tensor turn_;
  Batch rows_;
  Tensor sum_, branch_, weights_;
  std::vector<std::string> names_;
};

TEST_F(AdaptersTest, EachTargetAlone) {
  for (const LoraTarget target : kAll) {
    SCOPED_TRACE(kLoraTargets[static_cast<size_t>(target)]);
    expect_gradients(lora_of({target}));
  }
}

TEST_F(AdaptersTest, AllTargetsAndSomeOfAMatrix) {
  expect_gradients(lora_of(kAll));
  expect_gradients(lora_of({LoraTarget::kQuery, LoraTarget::kValue, LoraTarget::kUp}));
}

TEST_F(AdaptersTest, WithDropout) {
  const DropoutPlace place{
      .seed = 5, .step = 3, .first_sequence = 1, .sequence_step = 4, .sequence_length = 8};
  context.dropout = &place;
  for (const LoraTarget target : kAll) {
    SCOPED_TRACE(kLoraTargets[static_cast<size_t>(target)]);
    expect_gradients(lora_of({target}, 0.4));
  }
  expect_gradients(lora_of(kAll, 0.4));
}

// Each step and sequence has a mask of its own, and evaluation has none.
TEST_F(AdaptersTest, MasksDependOnSeedStepAndSequence) {
  Block block = frozen_block(lora_of(kAll, 0.4));
  const double without = loss(block);
  DropoutPlace place{.seed = 5, .step = 3, .sequence_length = 8};
  context.dropout = &place;
  const double first = loss(block);
  EXPECT_NE(first, without);
  EXPECT_EQ(first, loss(block));
  for (int64_t DropoutPlace::*member : {&DropoutPlace::step, &DropoutPlace::first_sequence}) {
    place.*member += 1;
    EXPECT_NE(loss(block), first);
    place.*member -= 1;
  }
  place.seed = 6;
  EXPECT_NE(loss(block), first);
}

// The mean of f (m x) a^T over all masks is scale x a^T; with ones for x and a it is scale times the columns.
TEST_F(AdaptersTest, EachAdapterHasAMaskOfItsOwnAndKeepsTheMean) {
  constexpr int64_t kTokens = 64, kColumns = 512;
  constexpr double kDrop = 0.4;
  ModelConfig config = kConfig;
  config.hidden_size = kColumns;
  config.num_hidden_layers = 2;
  const LoraConfig lora = lora_of({LoraTarget::kQuery, LoraTarget::kKey}, kDrop);
  const DropoutPlace place{.seed = 5, .step = 3, .sequence_length = kTokens};
  context.dropout = &place;
  const Tensor x = zeros({kTokens, kColumns});
  std::fill_n(x.as<float>(), x.count(), 1.0F);
  std::vector<std::vector<float>> counts;  // the low rows of an adapter, in units of its factor
  for (const int64_t layer : {0, 1}) {
    std::vector<AdapterSpec> specs = adapter_specs(config, lora);
    std::erase_if(specs, [&](const AdapterSpec& spec) { return spec.layer != layer; });
    const UnitSpec unit = parameter_table(config)[static_cast<size_t>(layer) + 1];
    Adapters adapters(unit.tensors[unit.vectors()], specs, lora, 1);
    adapters.a.value = zeros({adapters.width(), kColumns});
    std::fill_n(adapters.a.value.as<float>(), adapters.a.value.count(), 1.0F);
    const Tensor u = zeros({kTokens, adapters.width()});
    adapters.down(context, x, 0, u);
    for (const int64_t part : {0, 1}) {
      counts.emplace_back();
      for (int64_t row = 0; row < kTokens; ++row)
        counts.back().push_back(u.as<float>()[row * adapters.width() + part * kRank]);
    }
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    double mean = 0;
    for (const float count : counts[i]) mean += count / static_cast<double>(kTokens * kColumns);
    EXPECT_NEAR(mean, lora.scale(), 0.02 * lora.scale());
    for (size_t j = 0; j < i; ++j) EXPECT_NE(counts[i], counts[j]) << i << " " << j;
  }
}

TEST_F(AdaptersTest, BOfZeroChangesNothing) {
  Block block = frozen_block(lora_of(kAll));
  const auto zero = [](const Parameter& b) { std::fill_n(b.value.as<float>(), b.value.count(), 0.0F); };
  for (const Adapters* adapters : {&block.attention.wqkv_adapters, &block.attention.wo_adapters,
                                   &block.mlp.w13_adapters, &block.mlp.w2_adapters})
    zero(adapters->b);
  const double with = loss(block);
  for (Adapters* adapters : {&block.attention.wqkv_adapters, &block.attention.wo_adapters,
                             &block.mlp.w13_adapters, &block.mlp.w2_adapters})
    *adapters = {};
  EXPECT_EQ(with, loss(block));
}

// ---- the table

TEST(LoraTable, CutsAnAdapterAsItsMatrix) {
  const LoraConfig lora = lora_of(kAll);
  for (const AdapterSpec& adapter : adapter_specs(kConfig, lora)) {
    EXPECT_EQ(adapter.a.rows, kRank);
    EXPECT_EQ(adapter.a.columns, adapter.matrix.columns);
    EXPECT_EQ(adapter.b.rows, adapter.matrix.rows);
    EXPECT_EQ(adapter.b.columns, kRank);
    for (const int64_t t : {1, 2}) {
      EXPECT_EQ(adapter.b.slice_rows(t), adapter.matrix.slice_rows(t)) << adapter.b.name;
      EXPECT_EQ(adapter.a.slice_columns(t), adapter.matrix.slice_columns(t)) << adapter.a.name;
    }
    EXPECT_TRUE(is_adapter(adapter.a.name) && is_adapter(adapter.b.name));
    EXPECT_FALSE(is_adapter(adapter.matrix.name));
  }
  const std::vector<UnitSpec> units = unit_table(kConfig, lora);
  EXPECT_EQ(units.size(), 4U);
  EXPECT_TRUE(units[2].frozen);
  EXPECT_FALSE(units[3].frozen);
  EXPECT_EQ(units[3].name, "layers.0.lora");
  EXPECT_EQ(units[3].tensors.front().parts[2].name, "layers.0.attention.wv.lora_A.weight");
}

TEST(LoraTable, ScaleOfBothKinds) {
  LoraConfig lora{.rank = 16, .alpha = 8};
  EXPECT_EQ(lora.scale(), 0.5);
  lora.rslora = true;
  EXPECT_EQ(lora.scale(), 2.0);
}

TEST(LoraTable, RefusesWhatCannotBe) {
  const auto code = [](const LoraConfig& lora) { return error_of([&] { validate(lora, kConfig); }).code(); };
  LoraConfig lora = lora_of(kAll);
  EXPECT_EQ(code(lora), ExitCode::kOk);
  lora.rank = 9;  // k and v have 8 rows
  EXPECT_EQ(code(lora), ExitCode::kUsage);
  lora = lora_of({LoraTarget::kQuery});
  lora.rank = 16;
  EXPECT_EQ(code(lora), ExitCode::kOk);
  lora.alpha = 0;
  EXPECT_EQ(code(lora), ExitCode::kUsage);
  lora = lora_of(kAll, 1.0);
  EXPECT_EQ(code(lora), ExitCode::kUsage);
  EXPECT_EQ(code(lora_of({})), ExitCode::kUsage);
  EXPECT_EQ(code({}), ExitCode::kOk);
}

}  // namespace
}  // namespace ripstop::adapters
