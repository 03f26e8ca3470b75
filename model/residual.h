#pragma once
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"

namespace ripstop {

/// Makes a tensor for backward: in the caller's arena frame if forward keeps it, else without memory.
inline Tensor saved_tensor(Context& context, bool is_kept, DType dtype, const Shape& shape) {
  return is_kept ? context.arena.allocate(dtype, shape) : Tensor{nullptr, dtype, shape, context.device()};
}

/// Returns `saved` if it has memory, else a tensor of its dtype and shape in the caller's arena frame.
inline Tensor with_memory(Context& context, const Tensor& saved) {
  return saved.empty() ? context.arena.allocate(saved.dtype, saved.shape) : saved;
}

/// The residual stream from sub-layer to sub-layer: the sum so far, and the branch of the last sub-layer,
/// which the next sub-layer adds in the kernel of its norm. n = TensorAxis::local_rows(N).
struct Residual {
  Tensor sum{};   ///< [n, C]; null before the first sum: `branch` alone is the sum
  Tensor branch;  ///< [n, C]; each sub-layer reads it and then writes its own branch into the same memory
  /// [n, C] with Recompute::kFull, else null: memory that all feed-forward layers share for their sums.
  Tensor shared_sum{};
};

/// Whether backward computes the gradient w.r.t. a layer's input: kNot if all weights of earlier layers are
/// frozen.
enum class InputGradient : bool { kNot = false, kNeeded = true };

/// Tensors that the backward of a sub-layer's norm needs. Forward fills only tensors that have memory.
struct NormSaved {
  Tensor sum;          ///< [n, C] the residual sum
  Tensor normed;       ///< [n, C] input of the sub-layer's first GEMM
  Tensor inverse_rms;  ///< [n] float32
};

/// The tensors of NormSaved that forward keeps; inverse_rms is kept if `normed` is.
struct NormKept {
  bool sum = true, normed = true;
};

/// Allocates the tensors in `kept`, in the caller's arena frame.
NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype, NormKept kept = {});

/// Returns `saved`; a tensor that forward did not keep gets memory in the caller's arena frame.
NormSaved with_memory(Context& context, const NormSaved& saved);

/// Writes residual.sum + residual.branch to saved.sum, its norm to saved.normed and inverse_rms, and sets
/// residual.sum to saved.sum. saved.sum may be residual.sum, as in evaluation, where all layers share it.
void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved);

/// Computes saved.normed and saved.inverse_rms again from saved.sum, with the same bits.
void norm_again(Context& context, const Parameter& norm, double epsilon, const NormSaved& saved);

/// Adds the part of the gradient through the norm to dresidual [n, C]. Writes or adds the gradient of the
/// norm's weight, unless it is frozen.
void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual);

}  // namespace ripstop
