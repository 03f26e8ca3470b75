// Kernels that run before and after cuDNN's attention plans.
#pragma once
#include "model/kernels/cuda_attention.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// Offsets and lengths of documents, in device memory. Document d has elements [offset[d], offset[d + 1]) of
/// a tensor. Each row width has its own offsets: `row` for q|k|v, `query` for all query heads, `key_value`
/// for all key-value heads, `heads` for one number per query head. `length`: rows of each document.
struct RaggedOffsets {
  int64_t *row = nullptr, *query = nullptr, *key_value = nullptr, *heads = nullptr;
  int32_t* length = nullptr;
};

/// Fills `offsets` for all documents.
void locate_documents(const KernelCall& call, const Documents& documents, const Heads& heads,
                      const RaggedOffsets& offsets);

/// Copies log_sum_exp [N, H] of the group's documents to by_place [documents of `group`, H, length]; both
/// float32. Positions beyond the end of a document get 0. No document may be longer than `length`.
void log_sum_exp_by_place(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                          int64_t length, const Tensor& log_sum_exp, float* by_place);
/// The inverse of log_sum_exp_by_place.
void log_sum_exp_by_row(const KernelCall& call, const Documents& documents, const DocumentGroup& group,
                        int64_t length, const float* by_place, const Tensor& log_sum_exp);

/// Gradients of queries [N, H*D], keys [N, K*D] and values [N, K*D], as ragged plans write them.
struct SeparateGradients {
  const BFloat16 *query = nullptr, *key = nullptr, *value = nullptr;
};

/// dqkv [N, row] = the three gradients side by side. H*D and K*D must be multiples of 8.
void join_gradients(const KernelCall& call, const SeparateGradients& gradients, const Heads& heads,
                    const Tensor& dqkv);

/// Writes dqkv of the documents that have one row, which cuDNN's backward does not support. The output of
/// such a row is its value, so dq = dk = 0, and dv is the sum of dout over the value's query heads.
void single_row_gradients(const KernelCall& call, const Documents& documents, const Heads& heads,
                          const Tensor& dout, const Tensor& dqkv);

}  // namespace ripstop::cuda
