#pragma once
#include <cstdint>
#include <vector>

#include "model/core/host_tokens.h"

namespace ripstop {

/// A micro-batch in host memory: B sequences of T positions, N = B*T rows (token positions).
///
/// Document d has the rows [document_offset[d], document_offset[d+1]), inside one sequence; attention never
/// crosses a document. Padding fills the rest of each sequence, in short documents of its own: rows with
/// token 0 and no target.
struct PackedBatch {
  int64_t sequence_count = 0;              ///< B
  int64_t sequence_length = 0;             ///< T
  std::vector<int32_t> token;              ///< [N]
  std::vector<int32_t> position;           ///< [N] position in the document, from 0
  std::vector<int32_t> target;             ///< [N] the id to predict, -1 if the row has no target
  std::vector<int32_t> document_offset;    ///< [document_count + 1], first 0, last N
  int64_t target_count = 0;                ///< rows whose target is not -1
  std::vector<int32_t> sequence_set = {};  ///< [B] number of the data set; 0 for an empty sequence

  int64_t rows() const { return sequence_count * sequence_length; }
  int64_t document_count() const { return static_cast<int64_t>(document_offset.size()) - 1; }
  /// Views of the arrays above, valid as long as this batch lives.
  HostTokens host_tokens() const { return {token, position, target, document_offset, sequence_set}; }
};

}  // namespace ripstop
