#include "model/parameter.h"

#include <algorithm>
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

ParameterSpec norm(std::string name, int64_t rows) {
  return {.name = std::move(name), .rows = rows, .columns = 1, .vector = true};
}

// Adds the vectors of Attention::more_vectors, in the same order.
void add_vectors(const ModelConfig& config, const std::string& at, std::vector<PhysicalTensor>& tensors) {
  const int64_t d = config.head_size(), q = config.query_size(), kv = config.key_value_size();
  const auto bias = [&](const char* name, int64_t rows, Cut cut) {
    ParameterSpec spec = norm(fmt::format("{}.attention.{}.bias", at, name), rows);
    spec.cut = cut;
    spec.grain = cut == Cut::kRows ? d : 1;
    spec.initial = {Initial::Kind::kZeros};
    return spec;
  };
  if (config.qk_norm)
    tensors.push_back({{norm(at + ".attention.q_norm.weight", d), norm(at + ".attention.k_norm.weight", d)}});
  if (config.attention_bias == AttentionBias::kQkvo)
    tensors.push_back(one(bias("wo", config.hidden_size, Cut::kNone)));
  if (config.attention_bias != AttentionBias::kNone)
    tensors.push_back({{bias("wq", q, Cut::kRows), bias("wk", kv, Cut::kRows), bias("wv", kv, Cut::kRows)}});
}

// Vectors come first, since AdamW may decay only what is behind them (optimizer.decay_norms). Replicated
// vectors lead, since a unit begins with its replicated tensors. Matrices that read the same input lie in one
// tensor, so that one product reads all.
UnitSpec block(const ModelConfig& config, int64_t layer, double deviation) {
  const int64_t c = config.hidden_size, f = config.intermediate_size, d = config.head_size();
  const int64_t q = config.query_size(), kv = config.key_value_size();
  // Each of the L layers adds two branches to the residual stream, whose values must not grow with L.
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
  UnitSpec unit{at, {one(norm(at + ".attention_norm.weight", c)), one(norm(at + ".ffn_norm.weight", c))}};
  add_vectors(config, at, unit.tensors);
  for (PhysicalTensor& tensor :
       std::vector<PhysicalTensor>{{{matrix("attention.wq", q, c, Cut::kRows, d, deviation),
                                     matrix("attention.wk", kv, c, Cut::kRows, d, deviation),
                                     matrix("attention.wv", kv, c, Cut::kRows, d, deviation)}},
                                   one(matrix("attention.wo", c, q, Cut::kColumns, d, output)),
                                   {{matrix("feed_forward.w1", f, c, Cut::kRows, 1, deviation),
                                     matrix("feed_forward.w3", f, c, Cut::kRows, 1, deviation)}},
                                   one(matrix("feed_forward.w2", c, f, Cut::kColumns, 1, output))})
    unit.tensors.push_back(std::move(tensor));
  return unit;
}

}  // namespace

int64_t slice_extent(int64_t whole, int64_t slices, int64_t grain) {
  return round_up(divide_up(whole, slices), grain > 1 ? grain : kPaddingGrain);
}

size_t UnitSpec::vectors() const {
  return static_cast<size_t>(std::ranges::count_if(
      tensors, [](const PhysicalTensor& tensor) { return tensor.parts.front().vector; }));
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
    // A tied table is gathered for each of its two uses, and the gradients of the two uses are summed.
    units.push_back({"vocabulary", {one(norm("norm.weight", c)), one(table)}});
  else
    units.push_back({"embedding", {one(table)}});
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    units.push_back(block(config, layer, deviation));
  if (!config.tie_word_embeddings) units.push_back({"head", {one(norm("norm.weight", c)), one(output)}});
  return units;
}

}  // namespace ripstop
