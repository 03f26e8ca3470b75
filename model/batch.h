// Batch: the tokens of one micro-batch on the device, and BatchMemory, which owns them.
#pragma once
#include <cstdint>
#include <vector>

#include "model/core/host_tokens.h"
#include "model/device/tensor.h"
#include "model/ops/context.h"

namespace ripstop {

/// B sequences of T positions, N = B * T rows. A sequence is one or more whole documents one after another.
/// Views; all int32.
struct Batch {
  Tensor token;     ///< [N] input ids, in [0, V)
  Tensor position;  ///< [N] place within the document, from 0; RoPE turns by it
  /// [N + 1], of which document_count + 1 are used: document d is rows [document_offset[d],
  /// document_offset[d + 1]).
  Tensor document_offset;
  int64_t document_count = 0;
  int64_t longest_document = 0;
  /// [N] the rows sorted by (token id, row), so that the embedding's backward adds in a fixed order.
  Tensor token_order;
  /// [N], of which target_count are used: the rows whose prediction counts, ascending, and the ids that they
  /// must predict.
  Tensor target_row;
  Tensor target;
  int64_t target_count = 0;
  DropoutPlace place = {};  ///< used in training passes alone

  int64_t rows() const { return token.count(); }
};

/// Owns device memory for batches of at most B sequences of T positions, with room for any number of
/// documents and targets.
class BatchMemory {
 public:
  BatchMemory(const Device& device, MemoryLedger& ledger, int64_t sequence_count, int64_t sequence_length);

  /// Copies a batch of `sequence_count` sequences (at most B) to the device, in stream order, over the batch
  /// before. Throws Error(kBug) if the arrays do not have N rows. On kMeta `tokens` is not read: the batch
  /// has a target in every row, as a plan needs.
  Batch load(const Stream& stream, int64_t sequence_count, const HostTokens& tokens);

 private:
  int64_t capacity_rows_;
  int64_t sequence_length_;
  Buffer memory_;
  std::vector<int32_t> host_;  ///< source of copies; reused when the stream has passed them
};

}  // namespace ripstop
