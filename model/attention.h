// Causal self-attention over this rank's heads, with the norm before it.
#pragma once
#include <vector>

#include "model/batch.h"
#include "model/config.h"
#include "model/ops/tensor_axis.h"
#include "model/residual.h"

namespace ripstop {

/// One layer's keys and values of earlier positions, and where the rows at hand belong in it.
struct CacheRows {
  Tensor cache;     ///< [slots, P, 2, K*D] of this layer
  Tensor slot;      ///< [rows] int32
  Tensor position;  ///< [rows] int32
};

/// branch = sum over slices of attention(rope(norm(residual) wqkv^T)) wo^T.
///
/// A rank of the tensor axis holds H/t query and K/t key-value heads: wqkv is cut by rows, wo by columns, so
/// forward gathers the sequence before the first GEMM and scatters the sum after the last; backward mirrors
/// it. Source: LLaMA 2, arXiv:2307.09288; grouped-query attention, arXiv:2305.13245; the cut,
/// arXiv:1909.08053 section 3.
class Attention {
 public:
  /// What backward needs. N rows of all ranks, n local rows.
  struct Saved {
    NormSaved norm;
    Tensor qkv;          ///< [N, (H+2K)D / t], rotated
    Tensor out;          ///< [N, HD / t], before wo
    Tensor log_sum_exp;  ///< [N, H / t] float32
  };

  /// Throws Error(kResources) where the heads do not divide by `tensor_count`, naming counts that work.
  Attention(const ModelConfig& config, int64_t tensor_count);

  Parameter norm;  ///< [C]
  Parameter wqkv;  ///< [(H+2K)D / t, C]
  Parameter wo;    ///< [C, HD / t]

  /// Space for Saved of N rows, in the caller's arena frame.
  Saved allocate(Context& context, int64_t rows, DType dtype) const;

  /// Adds the residual's branch to its sum and leaves this layer's branch in its place. angle: see `rope`.
  /// Where `store` is given, all keys and values are stored there too (prefill of generation).
  void forward(Context& context, const Batch& batch, const Tensor& angle, Residual& residual,
               const Saved& saved, const CacheRows* store = nullptr) const;

  /// Turns dresidual [n, C], the gradient of the loss by this layer's sum + branch, into that by its input,
  /// in place. Writes or adds the gradients of norm, wqkv and wo.
  void backward(Context& context, const Batch& batch, const Tensor& angle, const Saved& saved,
                const Tensor& dresidual) const;

  /// Forward of one new row per sequence, attending to what is cached and itself.
  void decode(Context& context, const CacheRows& rows, const Tensor& angle, Residual& residual,
              const Saved& saved) const;

  const Heads& heads() const { return heads_; }

 private:
  int64_t hidden_;
  double epsilon_;
  Heads heads_;
};

}  // namespace ripstop
