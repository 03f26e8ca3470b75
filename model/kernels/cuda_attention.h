// The schedule and the workspace of attention with cuDNN, for memory plans and kernels. Needs no CUDA.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/ops/ops.h"

namespace ripstop::cuda {

/// Documents [first, first + count), which one execution of a cuDNN plan computes.
struct DocumentGroup {
  int64_t first = 0, count = 0;
  bool operator==(const DocumentGroup&) const = default;
};

/// The executions of cuDNN plans that compute one call of attention. A plan fits only one number of documents
/// and one largest length S, and takes up to a second to make, so schedules reuse few numbers and lengths.
struct AttentionSchedule {
  /// True if all documents have length S, a multiple of 128: then cuDNN finds documents by strides and writes
  /// gradients in place. Otherwise documents are "ragged": cuDNN reads lengths and offsets on the device.
  bool dense = false;
  int64_t length = 0;  ///< S
  /// One group for each execution, in the order of the documents.
  std::vector<DocumentGroup> groups;
};

/// The largest number of documents in one ragged group.
inline constexpr int64_t kMostDocuments = 512;

/// S of ragged plans: the smallest power of two that is at least `longest` and at least 128.
int64_t padded_length(int64_t longest);

/// Makes the schedule of `count` documents with `rows` rows in all and at most `longest` rows each. The
/// number of documents in a ragged group is a power of two, so that there are few plans. No group is filled
/// up with empty documents, for which cuDNN before 9.25 computes NaN. `padded`: the plan's workspace has S
/// rows for each document, so a group has at most attention_rows() / S documents.
AttentionSchedule attention_schedule(int64_t rows, int64_t count, int64_t longest, bool padded);

/// Rows in the workspace of padded plans.
inline int64_t attention_rows(int64_t rows, int64_t longest) {
  return std::max(rows, padded_length(longest));
}

/// Offsets in bytes from the beginning of the workspace, multiples of 256.
struct AttentionWorkspace {
  // For ragged plans, the arrays of RaggedOffsets (kernels/cuda/ragged_documents.h): four of `rows + 1`
  // int64, then the lengths, `rows` int32.
  int64_t offset_row = 0, offset_query = 0, offset_key_value = 0, offset_heads = 0, length = 0;
  /// log_sum_exp by document, head and position, float32. For dense plans and for Sums::kByPlace.
  int64_t log_sum_exp = 0;
  // For backward: the separate gradients of ragged plans (dquery, dkey, dvalue), bfloat16; the sum of dQ and
  // the row sums of dO * O, float32.
  int64_t dquery = 0, dkey = 0, dvalue = 0, dquery_sum = 0, row_sum = 0;
  /// For backward with grouped heads: dK and dV per query head, if the plan does not allocate these itself.
  int64_t dkey_grouped = 0, dvalue_grouped = 0;
  /// The plan's own workspace, from here to `bytes`; in backward, from `dkey_grouped` for dense plans and
  /// Sums::kByPlace.
  int64_t plan = 0;
  int64_t bytes = 0;
};

/// The workspaces of attention() and attention_backward() in bfloat16.
AttentionWorkspace attention_workspace(int64_t rows, const Heads& heads);
AttentionWorkspace attention_backward_workspace(int64_t rows, int64_t longest, const Heads& heads,
                                                bool deterministic);

}  // namespace ripstop::cuda
