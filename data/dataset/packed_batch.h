// PackedBatch: the tokens of a micro-batch, in host memory.
#pragma once
#include <cstdint>
#include <vector>

#include "model/core/host_tokens.h"

namespace ripstop {

/// A micro-batch: B sequences of T positions, N = B*T rows. A row is one token position.
///
/// Document d has the rows [document_offset[d], document_offset[d+1]). A document never crosses the end of a
/// sequence; attention never crosses a document. Padding fills the rest of each sequence, and all of an empty
/// sequence. A row of padding has token 0 and no target; padding forms short documents of its own.
struct PackedBatch {
  int64_t sequence_count = 0;            ///< B
  int64_t sequence_length = 0;           ///< T
  std::vector<int32_t> token;            ///< [N]
  std::vector<int32_t> position;         ///< [N] position in the document, from 0
  std::vector<int32_t> target;           ///< [N] the id to predict, -1 if the row has no target
  std::vector<int32_t> document_offset;  ///< [document_count + 1], first 0, last N
  int64_t target_count = 0;              ///< rows whose target is not -1

  int64_t rows() const { return sequence_count * sequence_length; }
  int64_t document_count() const { return static_cast<int64_t>(document_offset.size()) - 1; }
  /// A view of the arrays for the model, valid as long as this batch lives.
  HostTokens host_tokens() const { return {token, position, target, document_offset}; }
};

}  // namespace ripstop
