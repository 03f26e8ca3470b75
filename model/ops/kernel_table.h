#pragma once
#include "model/ops/ops.h"

namespace ripstop {

/// The stream and scratch of a call. `workspace` has the bytes that WorkspaceTable gives; null for 0 bytes.
struct KernelCall {
  const Stream& stream;
  void* workspace = nullptr;
};

/// The kernels of one kind of device, in the order of ops.h. Each has the contract of its namesake in ops.h;
/// ops.cpp has checked shapes and dtypes.
struct KernelTable {
  void (*linear)(const KernelCall&, const Tensor& x, const Tensor& w, const Tensor& y, Accumulate);
  void (*linear_backward_input)(const KernelCall&, const Tensor& dy, const Tensor& w, const Tensor& dx,
                                Accumulate);
  void (*linear_backward_weight)(const KernelCall&, const Tensor& dy, const Tensor& x, const Tensor& dw,
                                 Accumulate);
  void (*add_bias)(const KernelCall&, const Tensor& bias, const Tensor& y);
  void (*add_bias_backward)(const KernelCall&, const Tensor& dy, const Tensor& dbias, Accumulate);
  void (*add_rmsnorm)(const KernelCall&, const Tensor& residual, const Tensor& branch, const Tensor& weight,
                      double epsilon, const Tensor& sum, const Tensor& normed, const Tensor& inverse_rms);
  void (*add_rmsnorm_backward)(const KernelCall&, const Tensor& dnormed, const Tensor& sum,
                               const Tensor& weight, const Tensor& inverse_rms, const Tensor& dresidual,
                               const Tensor& dweight, Accumulate);
  void (*norm_heads)(const KernelCall&, const Tensor& qkv, const Tensor& weight, double epsilon, const Heads&,
                     const Tensor& out);
  void (*norm_heads_backward)(const KernelCall&, const Tensor& qkv, const Tensor& weight, double epsilon,
                              const Heads&, const Tensor& dqkv, const Tensor& dweight, Accumulate);
  void (*rope)(const KernelCall&, const Tensor& qkv, const Tensor& position, const Tensor& angle,
               const Heads&, Direction);
  void (*attention)(const KernelCall&, const Tensor& qkv, const Documents&, const Heads&, const Tensor& out,
                    const Tensor& log_sum_exp);
  void (*attention_backward)(const KernelCall&, const Tensor& dout, const Tensor& qkv, const Tensor& out,
                             const Tensor& log_sum_exp, const Documents&, const Heads&, const Tensor& dqkv);
  int64_t (*prepare_attention)(const Stream&, const AttentionSizes&, Direction);
  void (*store_key_value)(const KernelCall&, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                          const Heads&, const Tensor& cache);
  void (*attention_cached)(const KernelCall&, const Tensor& qkv, const Tensor& slot, const Tensor& position,
                           const Tensor& cache, const Heads&, const CachedTail&, const Tensor& out);
  void (*swiglu)(const KernelCall&, const Tensor& gate_up, const Tensor& out);
  void (*swiglu_backward)(const KernelCall&, const Tensor& gate_up, const Tensor& dout);
  void (*embedding)(const KernelCall&, const Tensor& token, const Tensor& table, int64_t first_id,
                    const Tensor& out);
  void (*embedding_backward)(const KernelCall&, const Tensor& token, const Tensor& token_order,
                             const Tensor& dout, int64_t first_id, const Tensor& dtable, Accumulate);
  void (*gather_rows)(const KernelCall&, const Tensor& x, const Tensor& index, const Tensor& out);
  void (*scatter_rows)(const KernelCall&, const Tensor& x, const Tensor& index, const Tensor& out);
  void (*cross_entropy_statistics)(const KernelCall&, const Tensor& logits, const Tensor& target,
                                   const VocabularySlice&, const Tensor& statistics);
  void (*cross_entropy)(const KernelCall&, const Tensor& logits, const Tensor& target, const Tensor& all,
                        const VocabularySlice&, const Tensor& loss, const Tensor& dlogits);
  void (*argmax_rows)(const KernelCall&, const Tensor& logits, const VocabularySlice&, const Tensor& value,
                      const Tensor& id);
  void (*add_sum)(const KernelCall&, const Tensor& x, const Tensor& total);
  void (*add_squared_norm)(const KernelCall&, const Tensor& x, const Tensor& total);
  void (*fill_zero)(const KernelCall&, const Tensor& x);
  void (*convert)(const KernelCall&, const Tensor& x, const Tensor& y);
  void (*add)(const KernelCall&, const Tensor& x, const Tensor& y);
  void (*scale)(const KernelCall&, double factor, const Tensor& x);
  void (*dropout)(const KernelCall&, const Tensor& x, const DropoutBits&, const Tensor& y);
  void (*add_dropout)(const KernelCall&, const Tensor& x, const DropoutBits&, const Tensor& y);
  void (*reduce_pieces)(const KernelCall&, const std::vector<RankPiece>& pieces, const Tensor& out,
                        Accumulate);
  void (*gradient_scale)(const KernelCall&, const Tensor& global, double max_norm, const Tensor& scale);
  void (*adamw)(const KernelCall&, const AdamWStep&, const Tensor& scale, const Tensor& gradient,
                const Tensor& master, const Tensor& first, const Tensor& second, const Tensor& copy);
};

/// RIPSTOP_PRODUCTS and RIPSTOP_OTHER_KERNELS call the macro X with the name of each entry of KernelTable, in
/// order. A table made with both has every entry; -Wmissing-field-initializers finds a missing name.
#define RIPSTOP_PRODUCTS(X) X(linear) X(linear_backward_input) X(linear_backward_weight)
// clang-format off
#define RIPSTOP_OTHER_KERNELS(X)                                                                            \
  X(add_bias) X(add_bias_backward) X(add_rmsnorm) X(add_rmsnorm_backward) X(norm_heads)                     \
  X(norm_heads_backward) X(rope) X(attention) X(attention_backward) X(prepare_attention) X(store_key_value) \
  X(attention_cached) X(swiglu) X(swiglu_backward) X(embedding) X(embedding_backward) X(gather_rows)        \
  X(scatter_rows) X(cross_entropy_statistics) X(cross_entropy) X(argmax_rows) X(add_sum)                    \
  X(add_squared_norm) X(fill_zero) X(convert) X(add) X(scale) X(dropout) X(add_dropout) X(reduce_pieces)    \
  X(gradient_scale) X(adamw)
// clang-format on

/// The kernels for this processor; see model/kernels/cpu/processor.h.
const KernelTable& cpu_kernels();
const KernelTable& cuda_kernels();  ///< throws Error(kResources) without the CUDA back end
const KernelTable& meta_kernels();  ///< the kernels compute nothing
/// The kernels, except prepare_attention, hand each call to the stream's observer, which may run it.
const KernelTable& observed_kernels();
/// Throws Error(kResources) for kCuda without the CUDA back end.
const KernelTable& kernels(DeviceKind kind);

/// Functions that return the bytes of workspace an operation needs on one kind of device. They read sizes
/// (and, on the CPU, the number of threads and the processor) but need no device, so `ripstop plan --device
/// cuda` runs on a login node.
struct WorkspaceTable {
  /// The functions of the three products read no elements of their tensors.
  int64_t (*linear)(const Tensor& x, const Tensor& w, const Tensor& y, Accumulate);
  int64_t (*linear_backward_input)(const Tensor& dy, const Tensor& w, const Tensor& dx, Accumulate);
  int64_t (*linear_backward_weight)(const Tensor& dy, const Tensor& x, const Tensor& dw, Accumulate);
  int64_t (*add_bias_backward)(int64_t rows, int64_t columns);
  int64_t (*add_rmsnorm_backward)(int64_t rows, int64_t columns);
  int64_t (*norm_heads_backward)(int64_t rows, const Heads&);
  int64_t (*attention)(int64_t rows, const Heads&, DType);
  int64_t (*attention_backward)(int64_t rows, int64_t longest, const Heads&, DType, bool deterministic);
  int64_t (*attention_cached)(const Heads&);
  int64_t (*add_sum)(int64_t count);  ///< for add_squared_norm, too
};
const WorkspaceTable& cpu_workspaces();
const WorkspaceTable& cuda_workspaces();
/// The table of a Device's `planned` kind. Throws Error(kBug) for kMeta.
const WorkspaceTable& workspaces(DeviceKind kind);

}  // namespace ripstop
