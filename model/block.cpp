#include "model/block.h"

namespace ripstop {

void Block::backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                     const Tensor& dresidual, InputGradient input) const {
  Frame scratch(context.arena);
  const bool starts_again = saved.attention.qkv.empty();
  const Saved known = starts_again ? forward_again(context, batch, angle, saved) : saved;
  const bool to_attention = input == InputGradient::kNeeded || attention.trains();
  mlp.backward(context, known.mlp, dresidual, InputGradient{to_attention});
  if (to_attention) attention.backward(context, batch, angle, known.attention, dresidual, input);
}

void Block::set_adapters(const UnitSpec& unit, const std::vector<AdapterSpec>& adapters,
                         const LoraConfig& lora, int64_t tensor_count) {
  const auto of = [&](size_t matrix) {
    return Adapters(unit.tensors[unit.vectors() + matrix], adapters, lora, tensor_count);
  };
  attention.wqkv_adapters = of(0);
  attention.wo_adapters = of(1);
  mlp.w13_adapters = of(2);
  mlp.w2_adapters = of(3);
}

std::vector<Parameter*> Block::adapter_parameters() {
  Adapters &qkv = attention.wqkv_adapters, &o = attention.wo_adapters, &gate_up = mlp.w13_adapters,
           &down = mlp.w2_adapters;
  std::vector<Parameter*> parameters;
  const auto add = [&](Adapters& adapters, Parameter& parameter) {
    if (adapters.any()) parameters.push_back(&parameter);
  };
  add(qkv, qkv.a);
  add(o, o.b);
  add(gate_up, gate_up.a);
  add(down, down.b);
  add(qkv, qkv.b);
  add(o, o.a);
  add(gate_up, gate_up.b);
  add(down, down.a);
  return parameters;
}

Block::Saved Block::forward_again(Context& context, const Batch& batch, const Tensor& angle,
                                  const Saved& saved) const {
  Saved again = saved;
  again.attention = Attention::with_memory(context, saved.attention);
  again.mlp.norm = with_memory(context, saved.mlp.norm);
  Frame scratch(context.arena);
  // This pass has a branch of its own, because the memory of forward's branch now holds the gradient.
  Residual residual{.branch = context.arena.allocate(again.mlp.norm.sum.dtype, again.mlp.norm.sum.shape)};
  attention.forward_again(context, batch, angle, residual, again.attention);
  mlp.absorb_again(context, residual, again.mlp);
  return again;
}

}  // namespace ripstop
