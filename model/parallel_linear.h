// Linear layers whose weight is cut over the tensor axis: the two cuts of Megatron-LM, forward and backward.
#pragma once
#include "model/ops/context.h"
#include "model/parameter.h"

namespace ripstop {

// Between sub-layers a rank holds n of N rows; inside a sub-layer it holds all N rows of its slice of the
// columns. A column-parallel product leads into the sub-layer and a row-parallel product leads out of it. On
// an axis of one rank both are plain products. Communication and products overlap if the axis calls its
// bodies for parts of the rows. Source: arXiv:1909.08053 section 3; gathered and scattered sequences,
// arXiv:2205.05198 section 4.2.2.

/// y [N, O / t] = x w^T. x [n, I] holds this rank's rows, w [O / t, I] its slice. Gathers x over the axis.
/// Returns the gathered x [N, I], as TensorAxis::gather_sequence does.
Tensor column_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Tensor& y);

/// Backward of column_parallel_linear: dx [n, I] = this rank's rows of the sum over the axis of dy w; writes
/// or adds w.gradient. Gathers x again if `gathered` [N, I] is no tensor, because keeping the gathered rows
/// from forward would take N * I elements a layer.
void column_parallel_linear_backward(Context& context, const Tensor& dy, const Tensor& x, const Parameter& w,
                                     const Tensor& dx, const Tensor& gathered = {});

/// y [n, O] = this rank's rows of the sum over the axis of x w^T. x [N, I / t] and w [O, I / t] are slices.
void row_parallel_linear(Context& context, const Tensor& x, const Parameter& w, const Tensor& y);

/// Backward of row_parallel_linear for its input alone: dx [N, I / t] = dy w, with dy [n, O] gathered over
/// the axis. Returns the gathered dy [N, O], which lies in the caller's arena frame, for the weight's
/// gradient: the caller may have to compute x anew before that.
Tensor row_parallel_linear_backward_input(Context& context, const Tensor& dy, const Parameter& w,
                                          const Tensor& dx);

}  // namespace ripstop
