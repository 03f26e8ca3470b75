// Linear layers whose weight is cut over the tensor axis: the two cuts of Megatron-LM, forward and backward,
// with the adapters of the weight.
#pragma once
#include "model/adapters.h"
#include "model/ops/context.h"
#include "model/parameter.h"

namespace ripstop {

// Between sub-layers a rank holds n of N rows; inside a sub-layer it holds all N rows of its slice of the
// columns. A column-parallel product leads into the sub-layer and a row-parallel product leads out of it. On
// an axis of one rank both are plain products. Communication and products overlap if the axis calls its
// bodies for parts of the rows. Source: arXiv:1909.08053 section 3; gathered and scattered sequences,
// arXiv:2205.05198 section 4.2.2.
//
// A weight without a gradient is frozen: backward computes none. Of its adapters the tensor axis cuts the
// matrix on the side of the cut; the other one is on all ranks, and each rank has a part of its gradient, as
// of the norms'. Column-parallel: a is on all ranks; the low rows u are made of local rows and gathered, and
// their gradients are summed and scattered, so that only rows of k r columns travel. Row-parallel: b is on
// all ranks, and the sum of the product is that of the adapters, too: nothing more travels.

/// y [N, O / t] = x w^T + u b^T. x [n, I] holds this rank's rows, w [O / t, I] its slice. Writes u [N, k r],
/// the low rows of `adapters`, which backward needs. Gathers x over the axis. Returns the gathered x [N, I],
/// as TensorAxis::gather_sequence does.
Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                              const Tensor& u, const Tensor& y);

/// Backward of column_parallel_linear: dx [n, I] = this rank's rows of the sum over the axis of dy w, and
/// what comes through the adapters; without a tensor dx nothing of that. Writes or adds the gradients of w,
/// unless it is frozen, and of the adapters. For w.gradient gathers x again if `gathered` [N, I] is no
/// tensor, because keeping the gathered rows from forward would take N * I elements a layer.
void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Adapters& adapters, const Tensor& u, const Tensor& dx,
                                     const Tensor& gathered = {});

/// y [n, O] = this rank's rows of the sum over the axis of x w^T + u b^T. x [N, I / t] and w [O, I / t] are
/// slices.
void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                         const Tensor& y);

/// Operands of the gradients of a row-parallel product's weights. In the caller's arena frame.
struct RowParallelGradient {
  Tensor dy;  ///< [N, O], gathered
  Tensor du;  ///< [N, r], of the adapters' low rows; no tensor without adapters
};

/// Backward of row_parallel_linear for its input alone: dx [N, I / t] = dy w, and what comes through the
/// adapters, with dy [n, O] gathered over the axis; without a tensor dx only gathers.
RowParallelGradient row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                                       const Adapters& adapters, const Tensor& dx);

/// Backward for the weights: writes or adds the gradients of w, unless it is frozen, and of the adapters. A
/// function of its own, because the caller may have to compute x [N, I / t] anew before it.
void row_parallel_linear_backward_weight(Context& context, const RowParallelGradient& gradient,
                                         const Tensor& x, const Parameter& w, const Adapters& adapters);

}  // namespace ripstop
