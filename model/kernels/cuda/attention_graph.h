// Causal attention as cuDNN graphs. cuDNN recognises exactly these patterns and runs a fused kernel for each,
// which never stores scores (except with Sums::kFromScores). Source: the composite graphs of NVIDIA's
// cudnn-frontend; FlashAttention-2, arXiv:2307.08691.
#pragma once
#include <compare>

#include "model/kernels/cuda/cudnn_graph.h"
#include "model/ops/ops.h"

namespace ripstop::cuda {

/// How backward adds up a sum to which several thread blocks contribute.
enum class Sums : uint8_t {
  kByRow,  ///< adds into float32 buffers, indexed by row; the order of the additions varies
  /// adds into float32 buffers, indexed by (document, head, position); the order of the additions varies
  kByPlace,
  kOrdered,    ///< adds into float32 buffers, indexed by row, in a fixed order (cuDNN 9.25 and later)
  kFromScores  ///< computes dQ from the gradient of the scores, stored in bfloat16; in a fixed order
};

/// The sizes for which a plan is made.
struct AttentionShape {
  int64_t query_heads = 0, key_value_heads = 0, head_size = 0;
  int64_t documents = 0, length = 0;  ///< `length`: the most rows of a document
  bool dense = false;                 ///< whether each document has exactly `length` rows
  Sums sums = Sums::kByRow;           ///< read for backward only

  auto operator<=>(const AttentionShape&) const = default;
};

/// The ids under which an execution binds memory. Scalars are host floats: kScale = 1/sqrt(D), kMaskedPadding
/// and kMaskedFuture = -infinity, kOne = 1. Ragged plans read kLength (int32 [documents]) and offsets (int64
/// [documents + 1]; see RaggedOffsets): kOffsetKeyValue only in backward, kOffsetHeads not with kByPlace.
/// kDKeyGrouped and kDValueGrouped exist only in ragged plans with grouped heads and kByRow or kOrdered.
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

/// Makes the plan of forward, or a refusal. The plan reads q, k and v in place from rows of q|k|v, and writes
/// out [N, H*D] bfloat16 and log_sum_exp float32, which is [documents, H, length] if dense, else [N, H].
Plan attention_plan(const AttentionShape& shape, const PlanTarget& target, int64_t most_workspace_bytes);

/// Makes the plan of backward, or a refusal. A dense plan writes the gradients in place into rows of
/// dq|dk|dv; a ragged plan writes three tensors [N, H*D], [N, K*D] and [N, K*D]. log_sum_exp is [documents,
/// H, length] if dense or kByPlace, and must then be finite beyond the end of a document; otherwise it is [N,
/// H].
Plan attention_backward_plan(const AttentionShape& shape, const PlanTarget& target,
                             int64_t most_workspace_bytes);

}  // namespace ripstop::cuda
