// Causal self-attention over this rank's heads, with the norm before it.
#pragma once
#include <vector>

#include "model/adapters.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// One layer's cache of keys and values, and the places of a call's rows in it.
struct CacheRows {
  Tensor cache;          ///< [slots, P, 2, K*D] of this layer
  Tensor slot;           ///< [rows] int32
  Tensor position;       ///< [rows] int32, in the sequence
  Tensor place = {};     ///< [rows] int32: places in the slot for the keys and values of these rows
  CachedTail tail = {};  ///< the places of earlier positions in the slot
};

/// branch = sum over slices of attention(rope(norm(residual) wqkv^T)) wo^T.
///
/// A rank of the tensor axis holds H/t query and K/t key-value heads. wqkv is column-parallel and wo
/// row-parallel (see parallel_linear.h): forward gathers the rows before the first GEMM and scatters the sum
/// after the last; backward mirrors that. Source: LLaMA 2, arXiv:2307.09288; grouped-query attention,
/// arXiv:2305.13245; the cut, arXiv:1909.08053 section 3.
class Attention {
 public:
  /// The tensors that backward needs, for the N rows of all ranks or the n rows of this rank. Forward keeps
  /// the tensors with memory, norm.sum always.
  struct Saved {
    NormSaved norm;
    Tensor qkv;          ///< [N, (H+2K)D / t], rotated
    Tensor out;          ///< [N, HD / t], before wo
    Tensor log_sum_exp;  ///< [N, H / t] float32
    Tensor low;          ///< [N, k r], of wqkv's adapters; kept if qkv is
  };

  /// Throws Error(kResources) if an axis of `tensor_count` ranks cannot cut the heads; see check_tensor_axis.
  Attention(const ModelConfig& config, int64_t tensor_count);

  Parameter norm;  ///< [C]
  Parameter wqkv;  ///< [(H+2K)D / t, C]
  Parameter wo;    ///< [C, HD / t]
  Adapters wqkv_adapters, wo_adapters;

  /// Whether backward computes a gradient of any weight.
  bool trains() const { return !norm.gradient.empty() || wqkv_adapters.any() || wo_adapters.any(); }

  /// Makes Saved for N rows; the tensors that forward keeps are in the caller's arena frame.
  Saved allocate(Context& context, int64_t rows, DType dtype, Recompute recompute = Recompute::kNone) const;
  /// `saved` with memory in the caller's arena frame for the tensors that are not kept.
  static Saved with_memory(Context& context, const Saved& saved);

  /// Adds the residual's branch to its sum and leaves this layer's branch in its place. angle: see `rope`.
  /// Also stores all keys and values at `store`, unless it is null (prefill of generation).
  void forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
               const Saved& saved, const CacheRows* store = nullptr) const;

  /// Runs forward again from saved.norm.sum: writes the rest of `saved`, which has memory, the residual's sum
  /// (saved.norm.sum) and its branch.
  void forward_again(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
                     const Saved& saved) const;

  /// Turns dresidual [n, C], the gradient by sum + branch after this layer, in place into the gradient by its
  /// input, or leaves it as it is with InputGradient::kNot. Writes or adds the gradients of the weights that
  /// are not frozen. Norms the sum again if the norm is not kept; the rest of `saved` must have memory.
  void backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                const Tensor& dresidual, InputGradient input = InputGradient::kNeeded) const;

  /// Forward of one new row per sequence. The row attends to the cached rows of its sequence and to itself.
  void decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
              const Saved& saved) const;

  const Heads& heads() const { return heads_; }

 private:
  // Computes the branch from saved.norm.normed.
  void attend(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
              const Tensor& branch, const CacheRows* store) const;

  int64_t hidden_;
  double epsilon_;
  Heads heads_;
};

}  // namespace ripstop
