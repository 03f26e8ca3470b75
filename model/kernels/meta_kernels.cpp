// The kernel table that computes nothing. A step with it is the plan of the same step on a real device.
#include "model/ops/kernel_table.h"

namespace ripstop {
namespace {

template <class Kernel>
struct Nothing;
template <class Result, class... Args>
struct Nothing<Result (*)(Args...)> {
  static Result run(Args...) { return Result(); }
};
template <class Kernel>
constexpr Kernel nothing = Nothing<Kernel>::run;

}  // namespace

#define RIPSTOP_META_KERNEL(kernel) .kernel = nothing<decltype(KernelTable::kernel)>
const KernelTable& meta_kernels() {
  static constexpr KernelTable table{
      RIPSTOP_META_KERNEL(linear),
      RIPSTOP_META_KERNEL(linear_backward_input),
      RIPSTOP_META_KERNEL(linear_backward_weight),
      RIPSTOP_META_KERNEL(add_rmsnorm),
      RIPSTOP_META_KERNEL(add_rmsnorm_backward),
      RIPSTOP_META_KERNEL(rope),
      RIPSTOP_META_KERNEL(attention),
      RIPSTOP_META_KERNEL(attention_backward),
      RIPSTOP_META_KERNEL(prepare_attention),
      RIPSTOP_META_KERNEL(store_key_value),
      RIPSTOP_META_KERNEL(attention_cached),
      RIPSTOP_META_KERNEL(swiglu),
      RIPSTOP_META_KERNEL(swiglu_backward),
      RIPSTOP_META_KERNEL(embedding),
      RIPSTOP_META_KERNEL(embedding_backward),
      RIPSTOP_META_KERNEL(gather_rows),
      RIPSTOP_META_KERNEL(scatter_rows),
      RIPSTOP_META_KERNEL(cross_entropy_statistics),
      RIPSTOP_META_KERNEL(cross_entropy),
      RIPSTOP_META_KERNEL(argmax_rows),
      RIPSTOP_META_KERNEL(add_sum),
      RIPSTOP_META_KERNEL(add_squared_norm),
      RIPSTOP_META_KERNEL(fill_zero),
      RIPSTOP_META_KERNEL(convert),
      RIPSTOP_META_KERNEL(add),
      RIPSTOP_META_KERNEL(scale),
      RIPSTOP_META_KERNEL(dropout),
      RIPSTOP_META_KERNEL(add_dropout),
      RIPSTOP_META_KERNEL(reduce_pieces),
      RIPSTOP_META_KERNEL(gradient_scale),
      RIPSTOP_META_KERNEL(adamw),
  };
  return table;
}
#undef RIPSTOP_META_KERNEL

}  // namespace ripstop
