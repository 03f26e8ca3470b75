// Kernels around attention plans: the offsets of documents, log_sum_exp by place, one tensor of gradients
// from three, and the gradients of documents of one row.
#pragma once
#include "model/kernels/cuda_attention_schedule.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// The places of the documents of a batch, in device memory. Element d of an array, d = 0 .. documents, is
/// the beginning of document d and the end of document d - 1, counted in elements of a tensor: of q|k|v
/// (`row`), of the query heads, of the key-value heads, and of one number per query head (`heads`). length
/// [documents]: in rows.
struct RaggedOffsets {
  int64_t *row = nullptr, *query = nullptr, *key_value = nullptr, *heads = nullptr;
  int32_t* length = nullptr;
};

/// Fills `offsets` from documents.offset.
void locate_documents(const KernelCall& call, const Documents& documents, const Heads& heads,
                      const RaggedOffsets& offsets);

/// by_place [documents of `group`, H, length] = log_sum_exp [N, H] of the group's documents, 0 beyond the end
/// of each; float32. No document of the group is longer than `length`.
void log_sum_exp_by_place(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                          int64_t length, const Tensor& log_sum_exp, float* by_place);
/// The way back: writes the rows of log_sum_exp that belong to the group's documents.
void log_sum_exp_by_row(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                        int64_t length, const float* by_place, const Tensor& log_sum_exp);

/// The gradients of the query [N, H*D], key and value [N, K*D] heads, as ragged plans write them. bfloat16.
struct SeparateGradients {
  const BFloat16 *query = nullptr, *key = nullptr, *value = nullptr;
};

/// dqkv [N, row] = the three side by side. H*D and K*D are multiples of 8.
void join_gradients(const KernelCall& call, const SeparateGradients& gradients, const Heads& heads,
                    const Tensor& dqkv);

/// Writes dqkv of documents of one row, which cuDNN's backward does not support. Such a row attends only to
/// itself, so its output is its value: dq = dk = 0, and dv is the sum of dout over the query heads of the
/// group.
void single_row_gradients(const KernelCall& call, const Documents& documents, const Heads& heads,
                          const Tensor& dout, const Tensor& dqkv);

}  // namespace ripstop::cuda
