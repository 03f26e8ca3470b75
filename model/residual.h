// Residual: the stream between sub-layers, and the norm at the beginning of every sub-layer.
#pragma once
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"

namespace ripstop {

/// The residual stream from sub-layer to sub-layer: the sum so far, and the last sub-layer's branch, which is
/// still to be added to it. The next sub-layer adds it in one kernel with its norm. Rows are those that this
/// rank holds between blocks (TensorAxis::local_rows), n of N.
struct Residual {
  Tensor sum{};   ///< [n, C], or no tensor before the first sum: then `branch` alone is the sum
  Tensor branch;  ///< [n, C]; each sub-layer reads it and then writes its own branch into the same memory
};

/// The tensors that the backward of a sub-layer's norm needs.
struct NormSaved {
  Tensor sum;          ///< [n, C] the residual sum that was normed
  Tensor normed;       ///< [n, C] its norm, the input of the sub-layer's first GEMM
  Tensor inverse_rms;  ///< [n] float32
};

/// Allocates NormSaved in the caller's arena frame.
NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype);

/// Adds the residual's branch to its sum and norms it: residual.sum becomes saved.sum. If saved.sum is
/// residual.sum already (evaluation uses one NormSaved for all layers), updates the sum in place.
void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved);

/// Backward of `absorb`: adds the gradient that comes through the norm to dresidual [n, C], and writes or
/// adds the gradient of the norm's weight.
void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual);

}  // namespace ripstop
