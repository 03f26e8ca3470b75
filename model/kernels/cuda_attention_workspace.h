// The workspace of attention on cuDNN. Memory plans and the kernels share its layout. Needs no CUDA.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop::cuda {

/// The parts of attention's workspace: offsets in bytes from its beginning, each a multiple of 256.
struct AttentionWorkspace {
  // Offsets of the documents for ragged plans, `rows + 1` int64 each: in elements of q|k|v, of the query
  // heads, of the key-value heads, and of one number per query head. Then the documents' lengths, int32.
  int64_t offset_row = 0, offset_query = 0, offset_key_value = 0, offset_heads = 0, length = 0;
  /// log_sum_exp by document, head and position, float32. For dense plans and padded backward plans.
  int64_t log_sum_exp = 0;
  // Backward: the separate gradients of ragged plans, bfloat16; the sum of dQ and the row sums of dO * O,
  // float32.
  int64_t dquery = 0, dkey = 0, dvalue = 0, dquery_sum = 0, row_sum = 0;
  /// Backward with grouped heads, if the plan does not allocate them itself: dK and dV per query head.
  int64_t dkey_grouped = 0, dvalue_grouped = 0;
  /// The plan's own workspace, up to `bytes`. Begins at `dkey_grouped` if the plan allocates the grouped
  /// gradients itself.
  int64_t plan = 0;
  int64_t bytes = 0;
};

AttentionWorkspace attention_workspace(int64_t rows, const Heads& heads);
AttentionWorkspace attention_backward_workspace(int64_t rows, int64_t longest, const Heads& heads,
                                                bool deterministic);

}  // namespace ripstop::cuda
