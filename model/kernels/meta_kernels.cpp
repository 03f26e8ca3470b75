// The table that computes nothing: a step on it is the plan of the same step on a real device.
#include "model/ops/kernel_table.h"

namespace ripstop {
namespace {

template <class Row>
struct Nothing;
template <class... Args>
struct Nothing<void (*)(Args...)> {
  static void run(Args...) {}
};
template <class Row>
constexpr Row nothing = Nothing<Row>::run;

}  // namespace

#define RIPSTOP_META_ROW(row) .row = nothing<decltype(KernelTable::row)>
const KernelTable& meta_kernels() {
  static constexpr KernelTable table{
      RIPSTOP_META_ROW(linear),
      RIPSTOP_META_ROW(linear_backward_input),
      RIPSTOP_META_ROW(linear_backward_weight),
      RIPSTOP_META_ROW(add_rmsnorm),
      RIPSTOP_META_ROW(add_rmsnorm_backward),
      RIPSTOP_META_ROW(rope),
      RIPSTOP_META_ROW(attention),
      RIPSTOP_META_ROW(attention_backward),
      RIPSTOP_META_ROW(store_key_value),
      RIPSTOP_META_ROW(attention_cached),
      RIPSTOP_META_ROW(swiglu),
      RIPSTOP_META_ROW(swiglu_backward),
      RIPSTOP_META_ROW(embedding),
      RIPSTOP_META_ROW(embedding_backward),
      RIPSTOP_META_ROW(gather_rows),
      RIPSTOP_META_ROW(scatter_rows),
      RIPSTOP_META_ROW(cross_entropy_statistics),
      RIPSTOP_META_ROW(cross_entropy),
      RIPSTOP_META_ROW(argmax_rows),
      RIPSTOP_META_ROW(add_sum),
      RIPSTOP_META_ROW(add_squared_norm),
      RIPSTOP_META_ROW(fill_zero),
      RIPSTOP_META_ROW(convert),
      RIPSTOP_META_ROW(add),
      RIPSTOP_META_ROW(reduce_pieces),
      RIPSTOP_META_ROW(gradient_scale),
      RIPSTOP_META_ROW(adamw),
  };
  return table;
}
#undef RIPSTOP_META_ROW

}  // namespace ripstop
