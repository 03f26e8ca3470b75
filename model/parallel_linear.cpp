#include "model/parallel_linear.h"

#include "model/ops/ops.h"
#include "model/ops/tensor_axis.h"

namespace ripstop {

Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Tensor& y) {
  return context.tensor.gather_sequence(context, x, [&](const Tensor& rows, int64_t first) {
    linear(context, rows, w.value, y.row_range(first, rows.rows()));
  });
}

void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Tensor& dx, const Tensor& gathered) {
  const auto input_gradient = [&](const Tensor& partial, int64_t first) {
    linear_backward_input(context, dy.row_range(first, partial.rows()), w.value, partial);
  };
  const auto weight_gradient = [&](const Tensor& rows) {
    linear_backward_weight(context, dy, rows, w.gradient, w.accumulate);
  };
  context.tensor.scatter_sum_and_gather(context, dx, input_gradient, x, gathered, weight_gradient);
}

void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Tensor& y) {
  context.tensor.scatter_sum(context, y, [&](const Tensor& partial, int64_t first) {
    linear(context, x.row_range(first, partial.rows()), w.value, partial);
  });
}

Tensor row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                          const Tensor& dx) {
  return context.tensor.gather_sequence(context, dy, [&](const Tensor& rows, int64_t first) {
    linear_backward_input(context, rows, w.value, dx.row_range(first, rows.rows()));
  });
}

}  // namespace ripstop
