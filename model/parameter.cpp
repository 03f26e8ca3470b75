#include "model/parameter.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "model/core/rounding.h"

namespace ripstop {
namespace {

// Slices are padded to multiples of this many elements, for fast GEMM kernels and 16-byte loads.
constexpr int64_t kPaddingGrain = 8;

PhysicalTensor one(ParameterSpec spec) {
  return {{std::move(spec)}};
}

ParameterSpec norm(std::string name, int64_t columns) {
  return {.name = std::move(name), .rows = 1, .columns = columns, .vector = true};
}

// Norms come first, because a unit begins with its replicated tensors. Matrices that read the same input lie
// in one tensor, so that one product computes them.
UnitSpec block(const ModelConfig& config, int64_t layer, double deviation) {
  const int64_t c = config.hidden_size, f = config.intermediate_size, d = config.head_size();
  const int64_t q = config.num_attention_heads * d, kv = config.num_key_value_heads * d;
  // Each of the L layers adds two branches to the residual stream, whose size must not grow with L.
  const double output = deviation / std::sqrt(2.0 * static_cast<double>(config.num_hidden_layers));
  const std::string at = fmt::format("layers.{}", layer);
  const auto matrix = [&](const char* name, int64_t rows, int64_t columns, Cut cut, int64_t grain,
                          double from) {
    return ParameterSpec{.name = fmt::format("{}.{}.weight", at, name),
                         .rows = rows,
                         .columns = columns,
                         .cut = cut,
                         .grain = grain,
                         .initial = {Initial::Kind::kNormal, from}};
  };
  return {at,
          {one(norm(at + ".attention_norm.weight", c)),
           one(norm(at + ".ffn_norm.weight", c)),
           {{matrix("attention.wq", q, c, Cut::kRows, d, deviation),
             matrix("attention.wk", kv, c, Cut::kRows, d, deviation),
             matrix("attention.wv", kv, c, Cut::kRows, d, deviation)}},
           one(matrix("attention.wo", c, q, Cut::kColumns, d, output)),
           {{matrix("feed_forward.w1", f, c, Cut::kRows, 1, deviation),
             matrix("feed_forward.w3", f, c, Cut::kRows, 1, deviation)}},
           one(matrix("feed_forward.w2", c, f, Cut::kColumns, 1, output))}};
}

}  // namespace

int64_t slice_extent(int64_t whole, int64_t slices, int64_t grain) {
  return round_up(divide_up(whole, slices), grain > 1 ? grain : kPaddingGrain);
}

int64_t PhysicalTensor::slice_rows(int64_t slices) const {
  return std::accumulate(parts.begin(), parts.end(), int64_t{0},
                         [&](int64_t sum, const ParameterSpec& p) { return sum + p.slice_rows(slices); });
}

std::vector<UnitSpec> parameter_table(const ModelConfig& config) {
  const int64_t c = config.hidden_size, v = config.vocab_size;
  const double deviation =
      config.initializer_range > 0 ? config.initializer_range : 1 / std::sqrt(static_cast<double>(c));
  const ParameterSpec table{.name = "tok_embeddings.weight",
                            .rows = v,
                            .columns = c,
                            .cut = Cut::kRows,
                            .initial = {Initial::Kind::kNormal, deviation}};
  ParameterSpec output = table;
  output.name = "output.weight";

  std::vector<UnitSpec> units;
  if (config.tie_word_embeddings)
    // A tied table is gathered for each of its two uses, and the gradients of both are summed.
    units.push_back({"vocabulary", {one(norm("norm.weight", c)), one(table)}});
  else
    units.push_back({"embedding", {one(table)}});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    units.push_back(block(config, layer, deviation));
  if (!config.tie_word_embeddings) units.push_back({"head", {one(norm("norm.weight", c)), one(output)}});
  return units;
}

}  // namespace ripstop
