// Linear layers whose weight is cut over the tensor axis, by columns or by rows, with the weight's adapters:
// forward and backward.
#pragma once
#include "model/adapters.h"
#include "model/ops/context.h"
#include "model/parameter.h"

namespace ripstop {

// Between sub-layers a rank holds n of the N rows with all columns; inside a sub-layer it holds all N rows,
// but only its slice of the columns. A column-parallel product leads into the sub-layer and a row-parallel
// product leads out of it. On an axis of one rank both are plain products. Communication and products overlap
// if the axis calls the bodies for parts of the rows. Source: arXiv:1909.08053 section 3; gathered and
// scattered sequences, arXiv:2205.05198 section 4.2.2.
//
// A weight without a gradient is frozen: backward computes none. The tensor axis cuts one matrix of each
// adapter. The other matrix is whole on all ranks; each rank computes a part of its gradient, and these parts
// must be summed over the axis, as for norms.
// Column-parallel: a is whole on all ranks. Each rank computes the low rows u of its local rows; the low rows
// are gathered and their gradients are summed and scattered, so only rows of k r columns travel.
// Row-parallel: b is whole on all ranks. The sum of the product contains the adapters' part, so nothing more
// travels.

/// Column-parallel product: y [N, O / t] = x w^T + u b^T, with the local rows x [n, I] of all ranks and this
/// rank's slice w [O / t, I]. Gathers x over the axis. Writes u [N, k r], the low rows of `adapters`, which
/// backward needs. Returns the gathered x [N, I], as TensorAxis::gather_sequence does.
Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                              const Tensor& u, const Tensor& y);

/// Backward of column_parallel_linear. If dx is a tensor: dx [n, I] = this rank's rows of dy w, summed over
/// the axis, plus the part through the adapters. Writes or adds the gradients of w, unless it is frozen, and
/// of the adapters. w.gradient needs the gathered x: pass it as `gathered` [N, I] if it is at hand, else it
/// is gathered again. (To keep it from forward on would take N * I elements a layer.)
void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Adapters& adapters, const Tensor& u, const Tensor& dx,
                                     const Tensor& gathered = {});

/// Row-parallel product: y [n, O] = this rank's rows of x w^T + u b^T, summed over the axis. x [N, I / t] and
/// w [O, I / t] are this rank's slices.
void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                         const Tensor& y);

/// The gradients that row_parallel_linear_backward_weight needs, in the caller's arena frame.
struct RowParallelGradient {
  Tensor dy;  ///< [N, O], the gathered rows of all ranks
  Tensor du;  ///< [N, r], gradient by the adapters' low rows; no tensor without adapters
};

/// Backward of row_parallel_linear for its input: gathers dy [n, O] over the axis and, if dx is a tensor,
/// computes dx [N, I / t] = dy w plus the part through the adapters.
RowParallelGradient row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                                       const Adapters& adapters, const Tensor& dx);

/// Backward of row_parallel_linear for its weights: writes or adds the gradients of w, unless it is frozen,
/// and of the adapters. A separate function, because the caller may compute x [N, I / t] again between the
/// two.
void row_parallel_linear_backward_weight(Context& context, const RowParallelGradient& gradient,
                                         const Tensor& x, const Parameter& w, const Adapters& adapters);

}  // namespace ripstop
