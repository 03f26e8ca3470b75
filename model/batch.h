// Batch: the tokens of one micro-batch as the layers read them, and the memory it lies in.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/device/tensor.h"

namespace ripstop {

/// B sequences of T positions, N = B * T rows. A sequence holds one or more documents one after another.
/// Views; all int32. Every row belongs to exactly one document, and no document crosses the end of a sequence.
struct Batch {
  int64_t sequences = 0;  ///< B
  int64_t positions = 0;  ///< T

  Tensor token;     ///< [N] input ids, in [0, V)
  Tensor position;  ///< [N] place within the document, from 0: what RoPE turns by
  /// [N + 1] (capacity; `documents` + 1 are used): document d is rows
  /// [document_offset[d], document_offset[d + 1]).
  Tensor document_offset;
  int64_t documents = 0;
  int64_t longest_document = 0;
  /// [N] the rows sorted by (token id, row): lets the embedding's backward add in a fixed order.
  Tensor token_order;
  /// [N] (capacity; `targets` are used): the rows whose prediction counts, ascending, and the id each must
  /// predict.
  Tensor target_row;
  Tensor target;
  int64_t targets = 0;

  int64_t rows() const { return sequences * positions; }
};

/// Tokens as a loader hands them over, in host memory; see Batch for the meaning.
struct HostTokens {
  std::span<const int32_t> token;            ///< [N]
  std::span<const int32_t> position;         ///< [N]
  std::span<const int32_t> target;           ///< [N]; the id to predict, or -1 for none
  std::span<const int32_t> document_offset;  ///< [documents + 1]
};

/// Device memory for batches of at most B x T, with room for any number of documents and targets; owns it.
class BatchMemory {
 public:
  BatchMemory(const Device& device, MemoryLedger& ledger, int64_t sequences, int64_t positions);

  /// Copies a batch of `sequences` (at most B) to the device; it replaces the one before. On kMeta: a
  /// batch with a target in every row, the most that a real one can have.
  Batch load(const Stream& stream, int64_t sequences, const HostTokens& tokens);

 private:
  int64_t capacity_rows_;
  int64_t positions_;
  Buffer memory_;
  std::vector<int32_t> host_;  ///< what is being copied; reused once the stream has passed the copy
};

}  // namespace ripstop
