#include "model/residual.h"

namespace ripstop {

NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype) {
  return {.sum = context.arena.allocate(dtype, {rows, columns}),
          .normed = context.arena.allocate(dtype, {rows, columns}),
          .inverse_rms = context.arena.allocate(DType::kFloat32, {rows})};
}

void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved) {
  // Before the first sub-layer the branch is the embedding, and there is no sum to add it to.
  const bool first = residual.sum.empty();
  add_rmsnorm(context, first ? residual.branch : residual.sum, first ? Tensor{} : residual.branch, norm.value,
              epsilon, saved.sum, saved.normed, saved.inverse_rms);
  residual.sum = saved.sum;
}

void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual) {
  add_rmsnorm_backward(context, dnormed, saved.sum, norm.value, saved.inverse_rms, dresidual, norm.gradient,
                       norm.accumulate);
}

}  // namespace ripstop
