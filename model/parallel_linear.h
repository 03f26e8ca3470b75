// Linear layers whose weight is cut over the tensor axis, by columns or by rows, with the weight's adapters:
// forward and backward.
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
// A weight without a gradient is frozen: backward computes none. The tensor axis cuts one matrix of each
// adapter; the other matrix is on all ranks, and each rank has a part of its gradient to sum, as for norms.
// Column-parallel: a is on all ranks. Low rows u are made from local rows and gathered, and their gradients
// are summed and scattered, so only rows of k r columns travel. Row-parallel: b is on all ranks. The sum of
// the product contains the adapters' part, so nothing more travels.

/// y [N, O / t] = x w^T + u b^T. x [n, I] holds this rank's rows, w [O / t, I] its slice. Writes u [N, k r],
/// the low rows of `adapters`, which backward needs. Gathers x over the axis. Returns the gathered x [N, I],
/// as TensorAxis::gather_sequence does.
Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                              const Tensor& u, const Tensor& y);

/// Backward of column_parallel_linear. If dx is a tensor: dx [n, I] = this rank's rows of the sum over the
/// axis of dy w, plus the part through the adapters. Writes or adds the gradients of w, unless it is frozen,
/// and of the adapters. For w.gradient gathers x again if `gathered` [N, I] is no tensor: keeping the
/// gathered rows from forward would take N * I elements a layer.
void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Adapters& adapters, const Tensor& u, const Tensor& dx,
                                     const Tensor& gathered = {});

/// y [n, O] = this rank's rows of the sum over the axis of x w^T + u b^T. x [N, I / t] and w [O, I / t] are
/// slices.
void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                         const Tensor& y);

/// Operands for the gradients of a row-parallel product's weights, in the caller's arena frame.
struct RowParallelGradient {
  Tensor dy;  ///< [N, O], gathered
  Tensor du;  ///< [N, r], of the adapters' low rows; no tensor without adapters
};

/// Backward of row_parallel_linear for its input: gathers dy [n, O] over the axis and, if dx is a tensor,
/// computes dx [N, I / t] = dy w plus the part through the adapters.
RowParallelGradient row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                                       const Adapters& adapters, const Tensor& dx);

/// Backward of row_parallel_linear for its weights: writes or adds the gradients of w, unless it is frozen,
/// and of the adapters. Separate from the input's, because the caller may compute x [N, I / t] again in
/// between.
void row_parallel_linear_backward_weight(Context& context, const RowParallelGradient& gradient,
                                         const Tensor& x, const Parameter& w, const Adapters& adapters);

}  // namespace ripstop
