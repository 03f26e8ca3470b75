// Causal attention as cuDNN graphs. cuDNN recognises them and replaces them by its fused kernels: scores are
// never stored. Source: the composite graphs of NVIDIA's cudnn-frontend; arXiv:2307.08691.
#pragma once
#include <compare>

#include "model/kernels/cuda/cudnn_graph.h"
#include "model/ops/ops.h"

namespace ripstop::cuda {

/// How backward adds up what several blocks of threads contribute to.
enum class Sums : uint8_t {
  kByRow,      ///< in float32 buffers with a place for each row: in no fixed order
  kByPlace,    ///< in buffers with a place for each document and position below `length`: in no fixed order
  kOrdered,    ///< as kByRow, but one after another (cuDNN 9.25 and later)
  kFromScores  ///< from the gradient of the scores, written out in bfloat16: in a fixed order
};

/// What a plan is made for: `documents` documents of at most `length` rows, or of exactly `length` where
/// dense.
struct AttentionShape {
  int64_t query_heads = 0, key_value_heads = 0, head_size = 0;
  int64_t documents = 0, length = 0;
  bool dense = false;
  Sums sums = Sums::kByRow;  ///< backward only

  auto operator<=>(const AttentionShape&) const = default;
};

/// The ids under which an execution binds memory. Ragged plans read lengths (int32 [documents]) and the four
/// arrays of offsets (int64 [documents + 1]; see RaggedOffsets). k*Grouped: where grouped heads meet kByRow
/// or kOrdered and the plan is ragged. Scalars are host floats: scale 1/sqrt(D), masked = -infinity, one = 1.
enum AttentionTensor : int64_t {
  kQuery = 1,
  kKey,
  kValue,
  kOut,
  kLogSumExp,
  kDOut,
  kDQuery,
  kDKey,
  kDValue,
  kScale,
  kMaskedPadding,
  kMaskedFuture,
  kOne,
  kRowSum,
  kDQuerySum,
  kDKeyGrouped,
  kDValueGrouped,
  kLength,
  kOffsetRow,
  kOffsetQuery,
  kOffsetKeyValue,
  kOffsetHeads
};

/// q, k and v are read in place from rows of q|k|v. out [N, H*D]; log_sum_exp [N, H].
Plan attention_plan(const AttentionShape& shape, const PlanTarget& target, int64_t most_workspace_bytes);

/// Dense plans write the gradients in place into rows of dq|dk|dv, ragged ones as three tensors [N, H*D], [N,
/// K*D], [N, K*D].
Plan attention_backward_plan(const AttentionShape& shape, const PlanTarget& target,
                             int64_t most_workspace_bytes);

}  // namespace ripstop::cuda
