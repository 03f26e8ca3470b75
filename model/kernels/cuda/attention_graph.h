// Causal attention as cuDNN graphs. cuDNN recognises these patterns and runs a fused kernel for each, which
// stores no scores (except with Sums::kFromScores). Source: the composite graphs of NVIDIA's cudnn-frontend;
// FlashAttention-2, arXiv:2307.08691.
#pragma once
#include <compare>

#include "model/kernels/cuda/cudnn_graph.h"
#include "model/ops/ops.h"

namespace ripstop::cuda {

/// Major compute capabilities.
inline constexpr int kAmpere = 8, kHopper = 9, kBlackwell = 10;

/// The way in which backward adds up sums to which several thread blocks contribute.
enum class Sums : uint8_t {
  kByRow,      ///< in float32 buffers with an entry for each row; no fixed order
  kByPlace,    ///< in buffers with an entry for each document and position below `length`; no fixed order
  kOrdered,    ///< by row, in a fixed order (cuDNN 9.25 and later)
  kFromScores  ///< from the gradient of the scores, stored in bfloat16; a fixed order
};

/// Shape that a plan is made for: `documents` documents of at most (if dense, exactly) `length` rows each.
struct AttentionShape {
  int64_t query_heads = 0, key_value_heads = 0, head_size = 0;
  int64_t documents = 0, length = 0;
  bool dense = false;
  Sums sums = Sums::kByRow;  ///< backward only

  auto operator<=>(const AttentionShape&) const = default;
};

/// The ids under which an execution binds memory. Ragged plans read lengths (int32 [documents]) and four
/// arrays of offsets (int64 [documents + 1]; see RaggedOffsets). Forward does not read kOffsetKeyValue,
/// and kByPlace does not read kOffsetHeads. Only ragged plans with grouped heads, except kByPlace, use
/// kDKeyGrouped and kDValueGrouped. Scalars are host floats: scale = 1/sqrt(D), masked = -infinity, one = 1.
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

/// A plan, or a refusal.
///
/// Forward reads q, k and v in place from rows of q|k|v. out [N, H*D] bfloat16; log_sum_exp float32 [N, H],
/// or [documents, H, length] if dense.
///
/// Backward: a dense plan writes the gradients in place into rows of dq|dk|dv, a ragged plan into tensors
/// [N, H*D], [N, K*D] and [N, K*D]. log_sum_exp is [N, H], or [documents, H, length] if dense or kByPlace;
/// with kByPlace it must be finite beyond the end of a document.
Plan attention_plan(Direction direction, const AttentionShape& shape, const PlanTarget& target,
                    int64_t most_workspace_bytes);

}  // namespace ripstop::cuda
