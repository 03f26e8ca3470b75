// Residual: the stream between sub-layers, and the norm at the beginning of every sub-layer.
#pragma once
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"
#include "model/recompute.h"

namespace ripstop {

/// A tensor that backward needs: in the caller's arena frame if forward keeps it, else its dtype and shape
/// without memory, which is an empty tensor.
inline Tensor saved_tensor(Context& context, bool is_kept, DType dtype, const Shape& shape) {
  return is_kept ? context.arena.allocate(dtype, shape) : Tensor{nullptr, dtype, shape, context.device()};
}

/// `saved` itself, or, if it is not kept, such a tensor in the caller's arena frame.
inline Tensor with_memory(Context& context, const Tensor& saved) {
  return saved.empty() ? context.arena.allocate(saved.dtype, saved.shape) : saved;
}

/// The residual stream from sub-layer to sub-layer: the sum so far, and the last sub-layer's branch, which is
/// still to be added to it. The next sub-layer adds it in one kernel with its norm. Rows are those that this
/// rank holds between blocks (TensorAxis::local_rows), n of N.
struct Residual {
  Tensor sum{};   ///< [n, C], or no tensor before the first sum: then `branch` alone is the sum
  Tensor branch;  ///< [n, C]; each sub-layer reads it and then writes its own branch into the same memory
  /// [n, C], where feed-forward layers leave the sum if they do not keep it (Recompute::kFull): the next
  /// block reads it before its own feed-forward layer overwrites it. Else no tensor.
  Tensor shared_sum{};
};

/// Allocates branch, and shared_sum if `recompute` needs it, in the caller's arena frame. There is no sum
/// yet.
Residual allocate_residual(Context& context, int64_t rows, int64_t columns, DType dtype, Recompute recompute);

/// Whether a backward must give the gradient by the layer's input. Not if all weights below are frozen.
enum class InputGradient : bool { kNot = false, kNeeded = true };

/// The tensors that the backward of a sub-layer's norm needs. Those without memory are not kept by forward.
struct NormSaved {
  Tensor sum;          ///< [n, C] the residual sum that was normed
  Tensor normed;       ///< [n, C] its norm, the input of the sub-layer's first GEMM
  Tensor inverse_rms;  ///< [n] float32
};

/// Which tensors of NormSaved forward keeps; `normed` stands for inverse_rms, too.
struct NormKept {
  bool sum = true, normed = true;
};

/// Allocates those of NormSaved that forward keeps in the caller's arena frame.
NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype, NormKept kept = {});

/// `saved` with memory in the caller's arena frame for what is not kept.
NormSaved with_memory(Context& context, const NormSaved& saved);

/// Adds the residual's branch to its sum and norms it: residual.sum becomes saved.sum. If saved.sum is
/// residual.sum already (evaluation uses one NormSaved for all layers), updates the sum in place.
void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved);

/// Computes saved.normed and saved.inverse_rms again from saved.sum, to the bit: a norm is that of the sum as
/// it is stored.
void norm_again(Context& context, const Parameter& norm, double epsilon, const NormSaved& saved);

/// Backward of `absorb`: adds the gradient that comes through the norm to dresidual [n, C], and writes or
/// adds the gradient of the norm's weight, unless it is frozen.
void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual);

}  // namespace ripstop
