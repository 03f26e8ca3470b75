// Causal self-attention over this rank's heads, with the norm before it.
#pragma once
#include <vector>

#include "model/adapters.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// One layer's cache of keys and values, and where the rows of one decode step lie in the cache.
struct CacheRows {
  Tensor cache;          ///< [slots, P, 2, K*D] of this layer
  Tensor slot;           ///< [rows] int32: the slot of each row's sequence
  Tensor position;       ///< [rows] int32: the position of each row in its sequence, from 0
  Tensor place = {};     ///< [rows] int32: places in the slot for the keys and values of these rows
  CachedTail tail = {};  ///< the places of earlier positions in the slot
};

/// branch = attention(rope(norm(residual) wqkv^T)) wo^T, summed over the ranks of the tensor axis.
///
/// Each of the t ranks holds H/t query and K/t key-value heads. wqkv is column-parallel and wo row-parallel
/// (see parallel_linear.h): forward gathers the rows before the first GEMM and scatters the sum after the
/// last one; backward gathers and scatters in the same places. Source: LLaMA 2, arXiv:2307.09288;
/// grouped-query attention, arXiv:2305.13245; the cut, arXiv:1909.08053 section 3.
class Attention {
 public:
  /// Tensors of forward that backward needs: `norm` for the n rows of this rank, the others for the N rows of
  /// all ranks. Forward keeps those that have memory; norm.sum always has memory.
  struct Saved {
    NormSaved norm;
    Tensor qkv;          ///< [N, (H+2K)D / t], rotated
    Tensor out;          ///< [N, HD / t], before wo
    Tensor log_sum_exp;  ///< [N, H / t] float32
    Tensor low;          ///< [N, k r], low rows of wqkv's adapters; kept if qkv is kept
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
  /// Returns `saved`, with memory in the caller's arena frame for each tensor that forward did not keep.
  static Saved with_memory(Context& context, const Saved& saved);

  /// Adds residual.branch to residual.sum, then overwrites residual.branch with this layer's branch. `angle`:
  /// see rope(). If `store` is not null, also copies the keys and values of all rows into the cache of
  /// `store` (prefill of generation).
  void forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
               const Saved& saved, const CacheRows* store = nullptr) const;

  /// Runs forward again from saved.norm.sum. Every tensor of `saved` must have memory. Writes the other
  /// tensors of `saved` and residual.branch, and sets residual.sum to saved.norm.sum.
  void forward_again(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
                     const Saved& saved) const;

  /// On entry, dresidual [n, C] is the gradient of the loss by residual.sum + residual.branch after this
  /// layer. Turns dresidual in place into the gradient by the layer's input; with InputGradient::kNot leaves
  /// it unchanged. Writes or adds the gradients of the weights that are not frozen. Computes the norm again
  /// if forward did not keep it; all other tensors of `saved` must have memory.
  void backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                const Tensor& dresidual, InputGradient input = InputGradient::kNeeded) const;

  /// Forward of one new row per sequence. The row attends to the cached rows of its sequence and to itself.
  void decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
              const Saved& saved) const;

  const Heads& heads() const { return heads_; }

 private:
  // Computes qkv, attention and `branch` from saved.norm.normed.
  void attend(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
              const Tensor& branch, const CacheRows* store) const;

  int64_t hidden_;
  double epsilon_;
  Heads heads_;
};

}  // namespace ripstop
