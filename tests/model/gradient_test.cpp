// Tests every layer's backward against finite differences of its forward.
#include <gtest/gtest.h>

#include <limits>

#include "model/transformer.h"
#include "tests/model/layer_fixture.h"

namespace ripstop {
namespace {

using layers::dot;
using layers::expect_gradient;
using layers::LayerFixture;

// A model with grouped heads and an F that is not a multiple of eight, so that slices have padding.
const ModelConfig kConfig{.hidden_size = 16,
                          .intermediate_size = 20,
                          .num_hidden_layers = 1,
                          .num_attention_heads = 4,
                          .num_key_value_heads = 2,
                          .vocab_size = 13,
                          .max_position_embeddings = 8};
/// kConfig, and with all vectors that attention may have and heads of another size than C / H.
const ModelConfig kConfigs[] = {kConfig, [] {
                                  ModelConfig config = kConfig;
                                  config.attention_bias = AttentionBias::kQkvo;
                                  config.qk_norm = true;
                                  config.head_dim = 6;
                                  return config;
                                }()};
constexpr int64_t kRows = 16, kHidden = 16, kPaddedF = 24;

/// Clears all but the first `valid` of every `period` rows (or columns): the padding.
void clear_padded_rows(const Tensor& t, int64_t valid, int64_t period) {
  for (int64_t r = 0; r < t.rows(); ++r)
    if (r % period >= valid) std::fill_n(t.as<float>() + r * t.cols(), t.cols(), 0.0F);
}
void clear_padded_columns(const Tensor& t, int64_t valid) {
  for (int64_t r = 0; r < t.rows(); ++r)
    std::fill_n(t.as<float>() + r * t.cols() + valid, t.cols() - valid, 0.0F);
}

class GradientTest : public ::testing::Test, public LayerFixture {
 protected:
  Tensor angle(const ModelConfig& config) {
    Transformer model(config, {}, 1, 0, 8, stream, ledger);
    const Tensor copy = zeros(model.angle().shape);
    copy_bytes(stream, copy.data, model.angle().data, copy.bytes());
    return copy;
  }
  void fill_attention(Attention& a) {
    const Heads& heads = a.heads();
    fill_vector(a.norm, kHidden);
    fill(a.wqkv, {heads.row(), kHidden}, 0.3);
    fill(a.wo, {kHidden, heads.query * heads.size}, 0.3);
    for (Parameter* vector : a.more_vectors())
      fill_vector(*vector, vector == &a.head_norms ? 2 * heads.size
                           : vector == &a.bo       ? kHidden
                                                   : heads.row());
  }
  void fill_mlp(Mlp& m) {
    fill_vector(m.norm, kHidden);
    fill(m.w13, {2 * kPaddedF, kHidden}, 0.3);
    fill(m.w2, {kHidden, kPaddedF}, 0.3);
    clear_padded_rows(m.w13.value, kConfig.intermediate_size, kPaddedF);
    clear_padded_columns(m.w2.value, kConfig.intermediate_size);
  }

  /// The loss of a sub-layer: the weighted sum of its output sum + branch. Runs forward on copies, because
  /// forward overwrites the branch.
  template <class Forward>
  double weighed(const Tensor& sum, const Tensor& branch, const Tensor& weights, Forward forward) {
    Frame frame(arena);
    const Tensor copy = arena.allocate(DType::kFloat32, branch.shape);
    copy_bytes(stream, copy.data, branch.data, branch.bytes());
    Residual residual{.sum = sum, .branch = copy};
    forward(residual);
    return dot(residual.sum, weights) + dot(residual.branch, weights);
  }
};

/// A test of each of kConfigs.
class AttentionGradientTest : public GradientTest, public ::testing::WithParamInterface<ModelConfig> {};
INSTANTIATE_TEST_SUITE_P(Models, AttentionGradientTest, ::testing::ValuesIn(kConfigs),
                         [](const auto& info) { return info.param.qk_norm ? "AllVectors" : "Plain"; });

TEST_P(AttentionGradientTest, Attention) {
  Attention layer(GetParam(), 1);
  fill_attention(layer);
  const Batch rows = batch(kConfig.vocab_size);
  const Tensor turn = angle(GetParam()), sum = random({kRows, kHidden}), branch = random({kRows, kHidden}),
               weights = random({kRows, kHidden});
  const auto loss = [&] {
    return weighed(sum, branch, weights, [&](Residual& residual) {
      layer.forward(context, rows, turn, residual, layer.allocate(context, kRows, DType::kFloat32));
    });
  };
  Frame frame(arena);
  const Attention::Saved saved = layer.allocate(context, kRows, DType::kFloat32);
  const Tensor out = random({kRows, kHidden});
  copy_bytes(stream, out.data, branch.data, out.bytes());
  Residual residual{.sum = sum, .branch = out};
  layer.forward(context, rows, turn, residual, saved);
  const Tensor dresidual = zeros({kRows, kHidden});
  copy_bytes(stream, dresidual.data, weights.data, weights.bytes());
  layer.backward(context, rows, turn, saved, dresidual);

  expect_gradient(sum, dresidual, loss, "sum");
  expect_gradient(branch, dresidual, loss, "branch");
  expect_gradient(layer.norm.value, layer.norm.gradient, loss, "norm");
  expect_gradient(layer.wqkv.value, layer.wqkv.gradient, loss, "wqkv");
  expect_gradient(layer.wo.value, layer.wo.gradient, loss, "wo");
  for (const Parameter* vector : layer.more_vectors())
    expect_gradient(vector->value, vector->gradient, loss, "a vector");
}

TEST_F(GradientTest, Mlp) {
  Mlp layer(kConfig, 1);
  fill_mlp(layer);
  const Tensor sum = random({kRows, kHidden}), branch = random({kRows, kHidden}),
               weights = random({kRows, kHidden});
  const auto loss = [&] {
    return weighed(sum, branch, weights, [&](Residual& residual) {
      layer.forward(context, residual, layer.allocate(context, kRows, DType::kFloat32));
    });
  };
  Frame frame(arena);
  const Mlp::Saved saved = layer.allocate(context, kRows, DType::kFloat32);
  const Tensor out = zeros({kRows, kHidden}), dresidual = zeros({kRows, kHidden});
  copy_bytes(stream, out.data, branch.data, out.bytes());
  copy_bytes(stream, dresidual.data, weights.data, weights.bytes());
  Residual residual{.sum = sum, .branch = out};
  layer.forward(context, residual, saved);
  layer.backward(context, saved, dresidual);

  expect_gradient(sum, dresidual, loss, "sum");
  expect_gradient(layer.norm.value, layer.norm.gradient, loss, "norm");
  for (int64_t r = 0; r < 2 * kPaddedF; ++r) {
    if (r % kPaddedF < kConfig.intermediate_size) continue;
    for (int64_t c = 0; c < kHidden; ++c)
      EXPECT_EQ(layer.w13.gradient.as<float>()[r * kHidden + c], 0.0F) << "padding must stay zero";
  }
  for (int64_t half = 0; half < 2; ++half)
    expect_gradient(layer.w13.value.row_range(half * kPaddedF, kConfig.intermediate_size),
                    layer.w13.gradient.row_range(half * kPaddedF, kConfig.intermediate_size), loss, "w13");
  for (int64_t r = 0; r < kHidden; ++r) {
    const auto valid = [&](const Tensor& t) { return t.viewed({t.count()}).row_range(r * kPaddedF, 20); };
    expect_gradient(valid(layer.w2.value), valid(layer.w2.gradient), loss, "w2");
    for (int64_t c = 20; c < kPaddedF; ++c) EXPECT_EQ(layer.w2.gradient.as<float>()[r * kPaddedF + c], 0.0F);
  }
}

TEST_F(GradientTest, Embedding) {
  Embedding layer;
  fill(layer.table, {16, kHidden}, 1.0);
  const Batch rows = batch(kConfig.vocab_size);
  const Tensor out = zeros({kRows, kHidden}), weights = random({kRows, kHidden});
  const auto loss = [&] {
    layer.forward(context, rows.token, out);
    return dot(out, weights);
  };
  layer.backward(context, rows, weights);
  expect_gradient(layer.table.value, layer.table.gradient, loss, "table");
}

TEST_F(GradientTest, HeadLoss) {
  HeadLoss layer(kConfig, 1, 0);
  fill_vector(layer.norm, kHidden);
  fill(layer.output, {16, kHidden}, 0.5);
  const Batch rows = batch(kConfig.vocab_size);
  const Tensor sum = random({kRows, kHidden}), branch = random({kRows, kHidden}),
               total = zeros({1}, DType::kFloat64);
  const auto loss = [&] {
    Frame frame(arena);
    total.as<double>()[0] = 0;
    Residual residual{.sum = sum, .branch = branch};
    layer.forward(context, rows, layer.output, residual, layer.allocate(context, kRows, DType::kFloat32),
                  total);
    return total.as<double>()[0];
  };
  Frame frame(arena);
  const HeadLoss::Saved saved = layer.allocate(context, kRows, DType::kFloat32);
  Residual residual{.sum = sum, .branch = branch};
  const Tensor dresidual = random({kRows, kHidden});
  total.as<double>()[0] = 100;
  layer.forward_backward(context, rows, layer.output, residual, saved, total, dresidual);
  const double added = total.as<double>()[0] - 100;
  EXPECT_NEAR(added, loss(), 1e-4) << "forward_backward and forward agree, and add";

  expect_gradient(sum, dresidual, loss, "sum");
  expect_gradient(layer.norm.value, layer.norm.gradient, loss, "norm");
  expect_gradient(layer.output.value.row_range(0, 13), layer.output.gradient.row_range(0, 13), loss,
                  "output");
  for (int64_t i = 13 * kHidden; i < 16 * kHidden; ++i) EXPECT_EQ(layer.output.gradient.as<float>()[i], 0.0F);
}

TEST_F(GradientTest, HeadLossWithoutTargetsHasZeroGradients) {
  HeadLoss layer(kConfig, 1, 0);
  fill_vector(layer.norm, kHidden);
  fill(layer.output, {16, kHidden}, 0.5);
  Batch rows = batch(kConfig.vocab_size);
  rows.target_count = 0;
  Frame frame(arena);
  const Tensor total = zeros({1}, DType::kFloat64), dresidual = random({kRows, kHidden});
  Residual residual{.sum = random({kRows, kHidden}), .branch = random({kRows, kHidden})};
  layer.forward_backward(context, rows, layer.output, residual,
                         layer.allocate(context, kRows, DType::kFloat32), total, dresidual);
  EXPECT_EQ(total.as<double>()[0], 0);
  for (const Tensor& t : {dresidual, layer.output.gradient, layer.norm.gradient})
    for (int64_t i = 0; i < t.count(); ++i) ASSERT_EQ(t.as<float>()[i], 0.0F);
}

TEST_P(AttentionGradientTest, Block) {
  Block block(GetParam(), 1);
  fill_attention(block.attention);
  fill_mlp(block.mlp);
  const Batch rows = batch(kConfig.vocab_size);
  const Tensor turn = angle(GetParam()), sum = random({kRows, kHidden}), branch = random({kRows, kHidden}),
               weights = random({kRows, kHidden});
  const auto loss = [&] {
    return weighed(sum, branch, weights, [&](Residual& residual) {
      block.forward(context, rows, turn, residual, block.allocate(context, kRows, DType::kFloat32));
    });
  };
  // Gradients have the same bits whatever forward keeps.
  std::vector<float> of_none;
  for (const Recompute recompute : kRecomputes) {
    SCOPED_TRACE(to_string(recompute));
    Frame frame(arena);
    const Tensor dresidual = zeros({kRows, kHidden});
    Residual residual = layers::allocate_residual(context, kRows, kHidden, DType::kFloat32, recompute);
    residual.sum = sum;
    copy_bytes(stream, residual.branch.data, branch.data, branch.bytes());
    copy_bytes(stream, dresidual.data, weights.data, weights.bytes());
    for (const Parameter* p : block.parameters())
      if (p->gradient.shape.dims() == 1) fill_zero(context, p->gradient);  // backward adds to vectors
    const Block::Saved saved = block.allocate(context, kRows, DType::kFloat32, recompute);
    block.forward(context, rows, turn, residual, saved);
    // The next block adds to these, and its own backward needs them no more.
    for (const Tensor& t : {residual.sum, residual.branch})
      if (t.data != saved.mlp.norm.sum.data) fill_zero(context, t);
    {
      Frame stale(arena);  // nothing that is not kept may be found where forward left it
      const Tensor all = arena.allocate(DType::kFloat32, {1 << 16});
      std::fill_n(all.as<float>(), all.count(), std::numeric_limits<float>::quiet_NaN());
    }
    block.backward(context, rows, turn, saved, dresidual);

    expect_gradient(sum, dresidual, loss, "sum");
    expect_gradient(block.attention.wqkv.value, block.attention.wqkv.gradient, loss, "wqkv");
    expect_gradient(block.mlp.norm.value, block.mlp.norm.gradient, loss, "feed-forward norm");
    std::vector<float> all(dresidual.as<float>(), dresidual.as<float>() + dresidual.count());
    for (const Parameter* p : block.parameters())
      all.insert(all.end(), p->gradient.as<float>(), p->gradient.as<float>() + p->gradient.count());
    if (recompute == Recompute::kNone) of_none = all;
    EXPECT_EQ(all, of_none);
  }
}

// Forward keeps the elements and bytes that model/recompute.h states.
TEST_F(GradientTest, ABlockKeepsWhatItsModeSays) {
  constexpr int64_t kC = kHidden, kH = 4;
  const auto kept = [&](const Block& block, Recompute recompute) {
    Frame frame(arena);
    const int64_t before = arena.used_bytes();
    block.allocate(context, kRows, DType::kFloat32, recompute);
    return arena.used_bytes() - before;
  };
  // 16 rows of float32: every tensor but inverse_rms [16] is a multiple of the arena's 256 bytes.
  for (const ModelConfig& config : kConfigs) {
    const Block block(config, 1);
    const int64_t attention = 2 * (config.query_size() + config.key_value_size()) + kH;
    EXPECT_EQ(kept(block, Recompute::kNone), kRows * 4 * (4 * kC + attention + 2 * kPaddedF) + 2 * 256);
    EXPECT_EQ(kept(block, Recompute::kSelective), kRows * 4 * (2 * kC + attention));
    EXPECT_EQ(kept(block, Recompute::kFull), kRows * 4 * kC);
  }
}

}  // namespace
}  // namespace ripstop
