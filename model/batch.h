#pragma once
#include <cstdint>
#include <vector>

#include "model/core/host_tokens.h"
#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// The tokens of B sequences of T positions on the device: N = B * T rows, int32. A sequence holds one or
/// more documents, one after another. Every row belongs to exactly one document, and no document crosses the
/// end of a sequence.
struct Batch {
  Tensor token;     ///< [N] input ids, in [0, V)
  Tensor position;  ///< [N] position in the document, from 0, which gives the angle of the rotary embedding
  /// document_count + 1 used: rows [document_offset[d], document_offset[d + 1]) are document d
  Tensor document_offset;
  int64_t document_count = 0;
  int64_t longest_document = 0;
  /// [N] the rows sorted by (token id, row), so that the embedding's backward adds in a fixed order
  Tensor token_order;
  /// [N] each, the first target_count used: rows whose prediction counts, ascending, and the ids to predict
  Tensor target_row;
  Tensor target;
  int64_t target_count = 0;
  /// Targets [begin, end) come from data set number `set`.
  struct SetTargets {
    int64_t set = 0, begin = 0, end = 0;
  };
  std::vector<SetTargets> set_targets = {};  ///< by ascending `begin`; empty if not known
  Tensor set_loss = {};     ///< [data sets] float64: the head adds each set's loss; null: not wanted
  DropoutPlace place = {};  ///< where dropout takes its random bits, in training

  int64_t rows() const { return token.count(); }
};

/// Owns device memory for `batches` batches of B sequences of T positions, with any documents and targets.
class BatchMemory {
 public:
  BatchMemory(const Device& device, MemoryLedger& ledger, int64_t sequence_count, int64_t sequence_length,
              int64_t batches = 1);

  /// Copies a batch of `sequence_count` sequences to the device in stream order. Overwrites the oldest of the
  /// last `batches` batches. On kMeta copies nothing, and reads only the number of targets (default: N) and
  /// the length of the longest document (default: T). Throws Error(kBug) if `sequence_count` exceeds B or,
  /// except on kMeta, the arrays do not have N rows.
  Batch load(const Stream& stream, int64_t sequence_count, const HostTokens& tokens);

 private:
  int64_t capacity_rows_;
  int64_t sequence_length_;
  int64_t batches_, next_ = 0;
  Buffer memory_;
  std::vector<int32_t> host_;  ///< token_order, target_row and target
};

}  // namespace ripstop
