// What ragged attention plans need around them: where the documents of a batch lie, and their gradients laid
// side by side.
#pragma once
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// Where the documents of a batch lie, on the device: element [d] of each, d = 0 .. documents, is where
/// document d begins (and document d - 1 ends), in elements of a tensor whose rows are so long; `length`
/// [documents] is in rows.
struct RaggedOffsets {
  int64_t *row = nullptr, *query = nullptr, *key_value = nullptr, *heads = nullptr;
  int32_t* length = nullptr;
};

/// Fills `offsets` from documents.offset.
void locate_documents(const KernelCall& call, const Documents& documents, const Heads& heads,
                      const RaggedOffsets& offsets);

/// The gradients of query [N, H*D], key and value [N, K*D] heads, as ragged plans write them. bfloat16.
struct SeparateGradients {
  const BFloat16 *query = nullptr, *key = nullptr, *value = nullptr;
};

/// dqkv [N, row] = the three side by side. H*D and K*D are multiples of 8.
void join_gradients(const KernelCall& call, const SeparateGradients& gradients, const Heads& heads,
                    const Tensor& dqkv);

/// dqkv of the documents of one row, which cuDNN's backward is not made for: a row that attends to itself
/// alone gives its value on unchanged, so that dq = dk = 0 and dv is the sum of dout over the heads of its
/// group.
void single_row_gradients(const KernelCall& call, const Documents& documents, const Heads& heads,
                          const Tensor& dout, const Tensor& dqkv);

}  // namespace ripstop::cuda
