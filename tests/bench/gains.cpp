#include "tests/bench/gains.h"

#include <algorithm>
#include <string_view>

namespace ripstop {
namespace {

constexpr std::string_view kDecodedLayer = "decode/layer";

// Products of the layers with operands of one byte, at twice the rate. Each operand is read, rounded and
// written twice, since its transpose is multiplied as well.
Gain fp8_products(const std::vector<Measured>& all, double element, const Ceilings& ceilings) {
  Gain gain{"fp8 products"};
  for (const Measured& m : all) {
    if (!m.row.product || m.row.name.find("/head") != std::string::npos) continue;
    const ProductSizes& p = *m.row.product;
    const std::string_view name = m.row.name;
    const auto rounded = static_cast<double>(name.starts_with("linear/")                  ? p.k * (p.m + p.n)
                                             : name.starts_with("linear_backward_input/") ? p.m * p.k
                                                                                          : 0);
    gain.seconds += m.row.times * m.seconds;
    gain.floor_seconds += m.row.times * (m.flops / (2 * ceilings.product.at(m.row.dtype)) +
                                         rounded * (element + 2) / ceilings.copy_bytes);
  }
  return gain;
}

}  // namespace

KernelRow decoded_layer(const StepShape& shape, DType dtype) {
  const auto make = [=](Operands& o) {
    const Heads heads = shape.heads();
    const int64_t hidden = shape.model.hidden_size, inner = shape.model.intermediate_size;
    const int64_t attended = heads.query * heads.size;
    const auto weight = [&](int64_t out, int64_t in) { return o.tensor(o.dtype(), {out, in}, 0.02F); };
    const auto row = [&](int64_t columns) { return o.tensor({1, columns}); };
    const Tensor wqkv = weight(heads.row(), hidden), wo = weight(hidden, attended),
                 w13 = weight(2 * inner, hidden), w2 = weight(hidden, inner);
    const Tensor norm = o.tensor({hidden}), inverse = o.zeros(DType::kFloat32, {1});
    const Tensor angle = o.tensor(DType::kFloat32, {shape.positions, heads.size / 2, 2}, 0.5F);
    const Tensor slot = o.ids({0}), position = o.ids({static_cast<int32_t>(shape.positions - 1)});
    const Tensor cache = o.tensor({1, shape.positions, 2, heads.key_value * heads.size});
    const Tensor residual = row(hidden), branch = row(hidden), sum = row(hidden), normed = row(hidden),
                 qkv = row(heads.row()), out = row(attended), gate_up = row(2 * inner), low = row(inner);
    const auto& bytes = o.workspaces();
    const KernelCall call = o.call(std::max(
        {bytes.linear(normed, wqkv, qkv, Accumulate::kNo), bytes.linear(out, wo, branch, Accumulate::kNo),
         bytes.linear(normed, w13, gate_up, Accumulate::kNo), bytes.linear(low, w2, branch, Accumulate::kNo),
         bytes.attention_cached(heads)}));
    return Work{[=, &k = o.kernels()] {
                  k.add_rmsnorm(call, residual, branch, norm, 1e-5, sum, normed, inverse);
                  k.linear(call, normed, wqkv, qkv, Accumulate::kNo);
                  k.rope(call, qkv, position, angle, heads, Direction::kForward);
                  k.store_key_value(call, qkv, slot, position, heads, cache);
                  k.attention_cached(call, qkv, slot, position, cache, heads, {}, out);
                  k.linear(call, out, wo, branch, Accumulate::kNo);
                  k.add_rmsnorm(call, sum, branch, norm, 1e-5, residual, normed, inverse);
                  k.linear(call, normed, w13, gate_up, Accumulate::kNo);
                  k.swiglu(call, gate_up, low);
                  k.linear(call, low, w2, branch, Accumulate::kNo);
                },
                0, bytes_of({wqkv, wo, w13, w2, cache})};
  };
  return {std::string(kDecodedLayer), dtype, make, 0, {}};
}

std::vector<Gain> gains(const StepShape& shape, DType dtype, const std::vector<Measured>& all,
                        const Ceilings& ceilings) {
  const double copy = ceilings.copy_bytes, layers = static_cast<double>(shape.model.num_hidden_layers);
  const auto element = static_cast<double>(element_bytes(dtype));
  const auto sum = [&](double Measured::*member, std::initializer_list<std::string_view> names) {
    double result = 0;
    for (const Measured& m : all)
      if (std::find(names.begin(), names.end(), m.row.name) != names.end())
        result += std::max(m.row.times, 1.0) * m.*member;
    return result;
  };
  const auto seconds = &Measured::seconds, bytes = &Measured::bytes;
  // cross_entropy reads float32 logits and writes their gradient; the pass would read logits in `dtype`.
  const double one_pass = sum(bytes, {"cross_entropy"}) * 2 * element / (4 + element);
  // Forward would write `out` alone, of gate, up and out; backward would not read or write the gradient of
  // `out` between two kernels, but write `out` still.
  const double swiglu = sum(bytes, {"swiglu"}) / 3 + sum(bytes, {"swiglu_backward"}) * 2 / 3;
  return {{"logits in one pass", sum(seconds, {"linear/head", "cross_entropy_statistics", "cross_entropy"}),
           sum(&Measured::flops, {"linear/head"}) / ceilings.product.at(dtype) + one_pass / copy},
          {"SwiGLU in the products", sum(seconds, {"swiglu", "swiglu_backward"}), swiglu / copy},
          {"RoPE in a neighbour", sum(seconds, {"rope"}), 0},
          fp8_products(all, element, ceilings),
          {"decoding by a graph", layers * sum(seconds, {kDecodedLayer}),
           layers * sum(bytes, {kDecodedLayer}) / copy}};
}

}  // namespace ripstop
