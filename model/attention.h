#pragma once
#include <vector>

#include "model/adapters.h"
#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// One layer's cache of keys and values, and the places of the rows of a pass in it.
struct CacheRows {
  Tensor cache;          ///< [slots, P, 2, K*D] of this layer; a slot has P places
  Tensor slot;           ///< [rows] int32: slot of the row's sequence
  Tensor position;       ///< [rows] int32: position in the sequence, from 0
  Tensor place = {};     ///< [rows] int32: place in the slot for the row's keys and values
  CachedTail tail = {};  ///< places of positions 0 to `position`
};

/// branch = attention(rope(norm_heads(norm(residual) wqkv^T + bqkv))) wo^T, summed over the ranks of the
/// tensor axis, + bo. The norm of heads and both biases are there only if the model has them.
///
/// Each of the t ranks holds H/t query and K/t key-value heads. wqkv is column-parallel and wo row-parallel
/// (see parallel_linear.h). Source: LLaMA 2, arXiv:2307.09288; grouped-query attention, arXiv:2305.13245; the
/// cut, arXiv:1909.08053 section 3; biases, Qwen2, arXiv:2407.10671; norms of heads, Qwen3, arXiv:2505.09388.
class Attention {
 public:
  /// Tensors of forward that backward needs. `norm` is for this rank's n rows, the other tensors for all N
  /// rows. Forward fills norm.sum, and each other tensor only if it has memory.
  struct Saved {
    NormSaved norm;
    Tensor qkv;          ///< [N, (H+2K)D / t], rotated; with norms of heads, before norm and rotation
    Tensor out;          ///< [N, HD / t], before wo
    Tensor log_sum_exp;  ///< [N, H / t] float32
    Tensor low;          ///< [N, k r], low rows of wqkv's adapters; kept if qkv is kept
  };

  /// Throws Error(kResources) if `tensor_count` ranks cannot cut the heads; see check_tensor_axis.
  Attention(const ModelConfig& config, int64_t tensor_count);

  Parameter norm;  ///< [C]
  Parameter wqkv;  ///< [(H+2K)D / t, C]
  Parameter wo;    ///< [C, HD / t]
  // The next three are null if the model does not have them.
  Parameter head_norms;  ///< [2D]: for queries, then for keys
  Parameter bo;          ///< [C]
  Parameter bqkv;        ///< [(H+2K)D / t]
  Adapters wqkv_adapters, wo_adapters;

  /// Whether backward computes a gradient of any weight.
  bool trains() const { return !norm.gradient.empty() || wqkv_adapters.any() || wo_adapters.any(); }

  /// Allocates, in the caller's arena frame, the tensors that forward keeps.
  Saved allocate(Context& context, int64_t rows, DType dtype, Recompute recompute = Recompute::kNone) const;
  /// Returns `saved`; a tensor that forward did not keep gets memory in the caller's arena frame.
  static Saved with_memory(Context& context, const Saved& saved);

  /// Adds residual.branch to residual.sum, then overwrites residual.branch with this layer's branch. `angle`:
  /// see rope(). If `store` is not null, also copies the keys and values of all rows into store->cache.
  void forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
               const Saved& saved, const CacheRows* store = nullptr) const;

  /// Computes residual.branch and the tensors of `saved`, which all have memory, again from saved.norm.sum.
  /// Sets residual.sum to saved.norm.sum.
  void forward_again(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
                     const Saved& saved) const;

  /// On entry, dresidual [n, C] is the gradient of the loss w.r.t. residual.sum + residual.branch after this
  /// layer; on return, w.r.t. the layer's input. With InputGradient::kNot, dresidual does not change. Writes
  /// or adds the gradients of the weights that are not frozen. Computes the norm again if forward did not
  /// keep it; all other tensors of `saved` must have memory.
  void backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                const Tensor& dresidual, InputGradient input = InputGradient::kNeeded) const;

  /// Forward of one new row per sequence, which attends to the cached rows of its sequence and to itself.
  void decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
              const Saved& saved) const;

  const Heads& heads() const { return heads_; }

  /// head_norms, bo and bqkv, in this order, each only if the model has it.
  std::vector<Parameter*> more_vectors();

 private:
  Tensor turned(Context& context, const Tensor& position, const Tensor& angle, const Tensor& qkv) const;
  Tensor project(Context& context, const Tensor& position, const Tensor& angle, const Saved& saved) const;
  void add_output(Context& context, const Saved& saved, const Tensor& branch) const;
  void attend(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
              const Tensor& branch, const CacheRows* store) const;

  int64_t hidden_;
  double epsilon_;
  Heads heads_;
  AttentionBias bias_;
  bool norms_heads_;
};

}  // namespace ripstop
