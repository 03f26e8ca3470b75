// Linear layers whose weight, with its adapters, is cut over the tensor axis.
#pragma once
#include "model/adapters.h"
#include "model/ops/context.h"
#include "model/parameter.h"

namespace ripstop {

// Between sub-layers a rank holds n of the N rows with all columns; inside a sub-layer it holds all N rows,
// but only its slice of the columns. A column-parallel product begins a sub-layer, a row-parallel product
// ends it. Communication and products overlap if the axis calls the bodies for parts of the rows. Source:
// arXiv:1909.08053 section 3; gathered and scattered sequences, arXiv:2205.05198 section 4.2.2.
//
// A weight without a gradient is frozen. The tensor axis cuts one matrix of each adapter. The other matrix
// (`a` if column-parallel, `b` if row-parallel) is replicated; each rank computes a part of its gradient, and
// the caller sums these parts over the axis. In a column-parallel product, ranks exchange the low rows u for
// the adapters; in a row-parallel product, adapters add no communication.

/// y [N, O / t] = x w^T + u b^T, where x [N, I] is gathered from the local rows [n, I] of all ranks, and
/// w [O / t, I] is this rank's slice. Writes u [N, k r], the low rows of `adapters`, for backward. Returns
/// the gathered x, as TensorAxis::gather_sequence does.
Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                              const Tensor& u, const Tensor& y);

/// dx [n, I] = this rank's rows of dy w, summed over the axis, plus the part through the adapters; may be
/// null if w is frozen. Writes or adds the gradients of w, unless it is frozen, and of the adapters.
/// If w is not frozen, gathers x, unless the caller passes the gathered rows as `gathered` [N, I].
void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Adapters& adapters, const Tensor& u, const Tensor& dx,
                                     const Tensor& gathered = {});

/// y [n, O] = this rank's rows of x w^T + u b^T, summed over the axis. x [N, I / t] and w [O, I / t] are this
/// rank's slices.
void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Adapters& adapters,
                         const Tensor& y);

/// The result of row_parallel_linear_backward_input(), in the caller's arena frame.
struct RowParallelGradient {
  Tensor dy;  ///< [N, O], the gathered rows of all ranks
  Tensor du;  ///< [N, r], du of Adapters after scale_low(); null without adapters
};

/// Gathers dy [n, O] over the axis and, if dx is not null, computes dx [N, I / t] = dy w plus the part
/// through the adapters.
RowParallelGradient row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                                       const Adapters& adapters, const Tensor& dx);

/// Writes or adds the gradients of w, unless it is frozen, and of the adapters. A separate function, because
/// the caller may have to compute x [N, I / t] again first.
void row_parallel_linear_backward_weight(Context& context, const RowParallelGradient& gradient,
                                         const Tensor& x, const Parameter& w, const Adapters& adapters);

}  // namespace ripstop
