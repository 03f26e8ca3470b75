// Causal self-attention over this rank's heads, with the norm before it.
#pragma once
#include <vector>

#include "model/adapters.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// One layer's cache of keys and values, and the places in it that belong to the rows at hand.
struct CacheRows {
  Tensor cache;          ///< [slots, P, 2, K*D] of this layer
  Tensor slot;           ///< [rows] int32
  Tensor position;       ///< [rows] int32, in the sequence
  Tensor place = {};     ///< [rows] int32, in the slot, of the rows' own keys and values
  CachedTail tail = {};  ///< where the earlier positions of the sequences lie
};

/// branch = sum over slices of attention(rope(norm(residual) wqkv^T)) wo^T.
///
/// A rank of the tensor axis holds H/t query and K/t key-value heads. wqkv is column-parallel and wo
/// row-parallel (see parallel_linear.h): forward gathers the rows before the first GEMM and scatters the sum
/// after the last; backward mirrors that. Source: LLaMA 2, arXiv:2307.09288; grouped-query attention,
/// arXiv:2305.13245; the cut, arXiv:1909.08053 section 3.
class Attention {
 public:
  /// The tensors that backward needs, of the N rows of all ranks or of the n rows of this rank. Those without
  /// memory are not kept by forward; norm.sum always is.
  struct Saved {
    NormSaved norm;
    Tensor qkv;          ///< [N, (H+2K)D / t], rotated
    Tensor out;          ///< [N, HD / t], before wo
    Tensor log_sum_exp;  ///< [N, H / t] float32
    Tensor low;          ///< [N, k r], of wqkv's adapters; kept as qkv is
  };

  /// Throws Error(kResources) if an axis of `tensor_count` ranks cannot cut the heads; see check_tensor_axis.
  Attention(const ModelConfig& config, int64_t tensor_count);

  Parameter norm;  ///< [C]
  Parameter wqkv;  ///< [(H+2K)D / t, C]
  Parameter wo;    ///< [C, HD / t]
  Adapters wqkv_adapters, wo_adapters;

  /// Whether backward computes a gradient of any weight.
  bool trains() const { return !norm.gradient.empty() || wqkv_adapters.any() || wo_adapters.any(); }

  /// Allocates what forward keeps of Saved for N rows in the caller's arena frame.
  Saved allocate(Context& context, int64_t rows, DType dtype, Recompute recompute = Recompute::kNone) const;
  /// `saved` with memory in the caller's arena frame for what is not kept.
  static Saved with_memory(Context& context, const Saved& saved);

  /// Adds the residual's branch to its sum and leaves this layer's branch in its place. angle: see `rope`. If
  /// `store` is not null, also stores all keys and values there (prefill of generation).
  void forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
               const Saved& saved, const CacheRows* store = nullptr) const;

  /// Forward again, from saved.norm.sum alone: writes the rest of `saved`, all of which has memory, and makes
  /// saved.norm.sum the residual's sum and this layer's branch its branch.
  void forward_again(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
                     const Saved& saved) const;

  /// Turns dresidual [n, C] in place from the gradient of the loss by this layer's sum + branch into the
  /// gradient by its input; with InputGradient::kNot leaves it as it is. Writes or adds the gradients of what
  /// is not frozen. Norms the sum again if its norm is not kept; all else must have memory (checked).
  void backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                const Tensor& dresidual, InputGradient input = InputGradient::kNeeded) const;

  /// Forward of one new row per sequence, which attends to the cached rows of its sequence and to itself.
  void decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
              const Saved& saved) const;

  const Heads& heads() const { return heads_; }

 private:
  // From saved.norm.normed to the branch.
  void attend(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
              const Tensor& branch, const CacheRows* store) const;

  int64_t hidden_;
  double epsilon_;
  Heads heads_;
};

}  // namespace ripstop
