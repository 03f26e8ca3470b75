#include "model/parallel_linear.h"

#include "model/ops/ops.h"
#include "model/ops/tensor_axis.h"

namespace ripstop {

Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                              const Tensor& u, const Tensor& y) {
  if (adapters.any()) {
    const int64_t first = context.tensor.first_local_row(y.rows());
    adapters.down(context, x, first, u.row_range(first, x.rows()));
    context.tensor.gather_rows_of(context, u);
  }
  return context.tensor.gather_sequence(context, x, [&](const Tensor& rows, int64_t first) {
    const Tensor part = y.row_range(first, rows.rows());
    linear(context, rows, w.value, part);
    if (adapters.any()) adapters.up(context, u.row_range(first, rows.rows()), part);
  });
}

void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Adapters& adapters, const Tensor& u, const Tensor& dx,
                                     const Tensor& gathered) {
  const auto input_gradient = [&](const Tensor& partial, int64_t first) {
    linear_backward_input(context, dy.row_range(first, partial.rows()), w.value, partial);
  };
  if (!w.gradient.empty()) {
    const auto weight_gradient = [&](const Tensor& rows) {
      linear_backward_weight(context, dy, rows, w.gradient, w.accumulate);
    };
    context.tensor.scatter_sum_and_gather(context, dx, input_gradient, x, gathered, weight_gradient);
  } else if (!dx.empty()) {
    context.tensor.scatter_sum(context, dx, input_gradient);
  }
  if (!adapters.any()) return;
  const Frame scratch(context.arena);
  const Tensor du = context.arena.allocate(x.dtype, {x.rows(), adapters.width()});
  context.tensor.scatter_sum(context, du, [&](const Tensor& partial, int64_t first) {
    adapters.up_backward_input(context, dy.row_range(first, partial.rows()), partial);
  });
  adapters.scale_low(context, du);
  adapters.up_backward_weight(context, dy, u);
  const int64_t first = context.tensor.first_local_row(dy.rows());
  adapters.down_backward_weight(context, du, x, first);
  if (!dx.empty()) adapters.down_backward_input(context, du, first, dx);
}

void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                         const Tensor& y) {
  const Frame scratch(context.arena);
  Tensor u;
  if (adapters.any()) {
    u = context.arena.allocate(x.dtype, {x.rows(), adapters.width()});
    adapters.down(context, x, 0, u);
  }
  context.tensor.scatter_sum(context, y, [&](const Tensor& partial, int64_t first) {
    linear(context, x.row_range(first, partial.rows()), w.value, partial);
    if (adapters.any()) adapters.up(context, u.row_range(first, partial.rows()), partial);
  });
}

RowParallelGradient row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                                       const Adapters& adapters, const Tensor& dx) {
  RowParallelGradient gradient;
  gradient.dy = context.tensor.gather_sequence(context, dy, [&](const Tensor& rows, int64_t first) {
    if (!dx.empty()) linear_backward_input(context, rows, w.value, dx.row_range(first, rows.rows()));
  });
  if (!adapters.any()) return gradient;
  gradient.du = context.arena.allocate(dy.dtype, {gradient.dy.rows(), adapters.width()});
  adapters.up_backward_input(context, gradient.dy, gradient.du);
  adapters.scale_low(context, gradient.du);
  if (!dx.empty()) adapters.down_backward_input(context, gradient.du, 0, dx);
  return gradient;
}

void row_parallel_linear_backward_weight(Context& context, const RowParallelGradient& gradient,
                                         const Tensor& x, const Parameter& w, const Adapters& adapters) {
  if (!w.gradient.empty()) linear_backward_weight(context, gradient.dy, x, w.gradient, w.accumulate);
  if (!adapters.any()) return;
  adapters.down_backward_weight(context, gradient.du, x, 0);
  // Computes the low rows again, because that takes little time, and keeping them would take memory.
  const Frame scratch(context.arena);
  const Tensor u = context.arena.allocate(x.dtype, {x.rows(), adapters.width()});
  adapters.down(context, x, 0, u);
  adapters.up_backward_weight(context, gradient.dy, u);
}

}  // namespace ripstop
