// The workspace of attention on cuDNN, for memory plans and kernels. Needs no CUDA.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop::cuda {

/// Offsets in bytes from the beginning of the workspace, multiples of 256.
struct AttentionWorkspace {
  // For ragged plans, the arrays of RaggedOffsets (kernels/cuda/ragged_documents.h): four of `rows + 1`
  // int64, then the lengths, `rows` int32.
  int64_t offset_row = 0, offset_query = 0, offset_key_value = 0, offset_heads = 0, length = 0;
  /// log_sum_exp by document, head and position, float32. For dense plans and for padded plans of backward.
  int64_t log_sum_exp = 0;
  // For backward: the separate gradients of ragged plans (dquery, dkey, dvalue), bfloat16; the sum of dQ and
  // the row sums of dO * O, float32.
  int64_t dquery = 0, dkey = 0, dvalue = 0, dquery_sum = 0, row_sum = 0;
  /// For backward with grouped heads: dK and dV per query head, unless the plan allocates these itself.
  int64_t dkey_grouped = 0, dvalue_grouped = 0;
  /// The plan's own workspace, from here to `bytes`; from `dkey_grouped` if the plan allocates dK and dV per
  /// query head itself.
  int64_t plan = 0;
  int64_t bytes = 0;
};

AttentionWorkspace attention_workspace(int64_t rows, const Heads& heads);
AttentionWorkspace attention_backward_workspace(int64_t rows, int64_t longest, const Heads& heads,
                                                bool deterministic);

}  // namespace ripstop::cuda
