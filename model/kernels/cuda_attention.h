// How the documents of a batch are given to cuDNN, and the scratch that attention takes for it: what plans of
// memory and the kernels must agree on. Needs no CUDA.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// One execution of an attention plan: `count` documents from `first` on.
struct DocumentGroup {
  int64_t first = 0, count = 0;
  bool operator==(const DocumentGroup&) const = default;
};

/// How the documents of a call are given to cuDNN. A plan is made for a number of documents and a largest
/// length S, takes up to a second to make, and is kept; so both come in few values.
struct AttentionSchedule {
  /// All documents have length S, a multiple of 128: strides alone say where they lie, no lengths are read,
  /// and gradients are written in place. Else documents are "ragged": lengths and offsets are read on the
  /// device.
  bool dense = false;
  int64_t length = 0;  ///< S
  std::vector<DocumentGroup> groups;
};

/// Documents of one execution at most.
inline constexpr int64_t kMostDocuments = 512;

/// S of ragged plans: the power of two not below `longest`, at least 128.
int64_t padded_length(int64_t longest);

/// For `count` documents of `rows` rows in all, the longest of `longest`. Ragged groups have a power of two
/// of documents, so that no plan is given documents that do not exist: cuDNN before 9.25 computes NaN for
/// documents of length 0. `padded`: the plan's scratch holds S rows for each of its documents, and a group is
/// as small as it takes for that to stay within attention_rows.
AttentionSchedule attention_schedule(int64_t rows, int64_t count, int64_t longest, bool padded);

/// Rows that scratch of padded plans must have room for.
inline int64_t attention_rows(int64_t rows, int64_t longest) {
  return std::max(rows, padded_length(longest));
}

/// The parts of attention's scratch, as offsets in bytes from its beginning, each a multiple of 256.
struct AttentionScratch {
  // Where documents lie, read by ragged plans: `rows + 1` int64 each, counted in elements of q|k|v, of the
  // query heads, of the key-value heads, and of one number per query head; and their lengths, int32.
  int64_t offset_row = 0, offset_query = 0, offset_key_value = 0, offset_heads = 0, length = 0;
  // Backward: gradients of ragged plans, before they are laid side by side; dQ while it is added up, float32;
  // the sums of dO * O, float32.
  int64_t dquery = 0, dkey = 0, dvalue = 0, dquery_sum = 0, row_sum = 0;
  /// Backward with grouped heads, where the plan takes them from us: dK and dV by query head.
  int64_t dkey_grouped = 0, dvalue_grouped = 0;
  /// The plan's own, up to `bytes`; from `dkey_grouped` on where the plan keeps its sums itself.
  int64_t plan = 0;
  int64_t bytes = 0;
};

AttentionScratch attention_scratch(int64_t rows);
AttentionScratch attention_backward_scratch(int64_t rows, int64_t longest, const Heads& heads,
                                            bool deterministic);

}  // namespace ripstop::cuda
