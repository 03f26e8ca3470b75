// Residual: the stream between sub-layers, and the norm at the beginning of every sub-layer.
#pragma once
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"
#include "model/recompute.h"

namespace ripstop {

/// A tensor that backward needs: in the caller's arena frame if forward keeps it, else an empty tensor that
/// has only dtype and shape.
inline Tensor saved_tensor(Context& context, bool is_kept, DType dtype, const Shape& shape) {
  return is_kept ? context.arena.allocate(dtype, shape) : Tensor{nullptr, dtype, shape, context.device()};
}

/// `saved` itself if it has memory, else a tensor like it in the caller's arena frame.
inline Tensor with_memory(Context& context, const Tensor& saved) {
  return saved.empty() ? context.arena.allocate(saved.dtype, saved.shape) : saved;
}

/// The residual stream from sub-layer to sub-layer: the sum so far, and the last sub-layer's branch, which
/// the next sub-layer adds to the sum in one kernel with its norm. n = TensorAxis::local_rows(N).
struct Residual {
  Tensor sum{};   ///< [n, C], or no tensor before the first sum: then `branch` alone is the sum
  Tensor branch;  ///< [n, C]; each sub-layer reads it and then writes its own branch into the same memory
  /// [n, C] with Recompute::kFull, else no tensor: feed-forward layers, which then keep no sum, leave it here
  /// for the next block.
  Tensor shared_sum{};
};

/// Allocates branch, and shared_sum if `recompute` needs it, in the caller's arena frame; sum is no tensor.
Residual allocate_residual(Context& context, int64_t rows, int64_t columns, DType dtype, Recompute recompute);

/// Whether a backward must give the gradient by the layer's input: kNot if all weights below are frozen.
enum class InputGradient : bool { kNot = false, kNeeded = true };

/// The tensors that the backward of a sub-layer's norm needs. Forward keeps the tensors with memory.
struct NormSaved {
  Tensor sum;          ///< [n, C] the residual sum
  Tensor normed;       ///< [n, C] the normed sum, input of the sub-layer's first GEMM
  Tensor inverse_rms;  ///< [n] float32
};

/// The tensors of NormSaved that forward keeps; `normed` stands for normed and inverse_rms.
struct NormKept {
  bool sum = true, normed = true;
};

/// Makes NormSaved; the tensors in `kept` are in the caller's arena frame.
NormSaved allocate_norm(Context& context, int64_t rows, int64_t columns, DType dtype, NormKept kept = {});

/// `saved` with memory in the caller's arena frame for the tensors that are not kept.
NormSaved with_memory(Context& context, const NormSaved& saved);

/// Adds the residual's branch to its sum and norms it: residual.sum becomes saved.sum. If saved.sum is
/// residual.sum already (evaluation uses one NormSaved for all layers), updates the sum in place.
void absorb(Context& context, const Parameter& norm, double epsilon, Residual& residual,
            const NormSaved& saved);

/// Computes saved.normed and saved.inverse_rms again from saved.sum, with the same bits.
void norm_again(Context& context, const Parameter& norm, double epsilon, const NormSaved& saved);

/// Backward of `absorb`: adds the gradient that comes through the norm to dresidual [n, C], and writes or
/// adds the gradient of the norm's weight, unless it is frozen.
void absorb_backward(Context& context, const Parameter& norm, const NormSaved& saved, const Tensor& dnormed,
                     const Tensor& dresidual);

}  // namespace ripstop
