#include "model/block.h"

namespace ripstop {

void Block::backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                     const Tensor& dresidual) const {
  Frame scratch(context.arena);
  const bool starts_again = saved.attention.qkv.empty();
  const Saved known = starts_again ? forward_again(context, batch, angle, saved) : saved;
  mlp.backward(context, known.mlp, dresidual);
  attention.backward(context, batch, angle, known.attention, dresidual);
}

Block::Saved Block::forward_again(Context& context, const Batch& batch, const Tensor& angle,
                                  const Saved& saved) const {
  Saved again = saved;
  again.attention = Attention::with_memory(context, saved.attention);
  again.mlp.norm = with_memory(context, saved.mlp.norm);
  Frame scratch(context.arena);
  // The pass's own branch holds the gradient by now.
  Residual residual{.branch = context.arena.allocate(again.mlp.norm.sum.dtype, again.mlp.norm.sum.shape)};
  attention.forward_again(context, batch, angle, residual, again.attention);
  mlp.absorb_again(context, residual, again.mlp);
  return again;
}

}  // namespace ripstop
