// Residual: the stream between sub-layers, and the norm that every sub-layer begins with.
#pragma once
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"

namespace ripstop {

/// What flows from sub-layer to sub-layer: the residual sum so far, and the last sub-layer's branch that is
/// still to be added to it. Each sub-layer begins with the fused add + norm, so the norm weight belongs to
/// the unit that uses it. Rows are those this rank holds between blocks (TensorAxis::local_rows), n of N.
struct Residual {
  Tensor sum{};   ///< [n, C], or no tensor before the first sum: then `branch` alone is the sum
  Tensor branch;  ///< [n, C]; each sub-layer reads it and then writes its own into the same memory
};

/// What the backward of a sub-layer's norm needs.
struct NormSaved {
  Tensor sum;          ///< [n, C] the residual sum that was normed
  Tensor normed;       ///< [n, C] its norm, what the sub-layer's first GEMM read
  Tensor inverse_rms;  ///< [n] float32
};

/// Space for NormSaved in the caller's arena frame.
NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype);

/// Adds the residual's branch to its sum and norms it: residual.sum becomes saved.sum. Where saved.sum is
/// residual.sum already (evaluation uses one NormSaved again and again), the sum is updated in place.
void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved);

/// Backward of `absorb`: adds to dresidual what comes through the norm, and writes the norm weight's
/// gradient.
void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual);

}  // namespace ripstop
