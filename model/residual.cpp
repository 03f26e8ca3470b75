#include "model/residual.h"

namespace ripstop {

NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype, NormKept kept) {
  return {.sum = saved_tensor(context, kept.sum, dtype, {rows, columns}),
          .normed = saved_tensor(context, kept.normed, dtype, {rows, columns}),
          .inverse_rms = saved_tensor(context, kept.normed, DType::kFloat32, {rows})};
}

NormSaved with_memory(Context& context, const NormSaved& saved) {
  return {.sum = with_memory(context, saved.sum),
          .normed = with_memory(context, saved.normed),
          .inverse_rms = with_memory(context, saved.inverse_rms)};
}

void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved) {
  // The first sub-layer of a stage has no sum yet: the branch is the whole stream.
  const bool first = residual.sum.empty();
  add_rmsnorm(context, first ? residual.branch : residual.sum, first ? Tensor{} : residual.branch, norm.value,
              epsilon, saved.sum, saved.normed, saved.inverse_rms);
  residual.sum = saved.sum;
}

void norm_again(Context& context, const Parameter& norm, double epsilon, const NormSaved& saved) {
  add_rmsnorm(context, saved.sum, Tensor{}, norm.value, epsilon, saved.sum, saved.normed, saved.inverse_rms);
}

void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual) {
  add_rmsnorm_backward(context, dnormed, saved.sum, norm.value, saved.inverse_rms, dresidual, norm.gradient,
                       norm.accumulate);
}

}  // namespace ripstop
