// Batch: the tokens of one micro-batch as the layers read them.
#pragma once
#include <cstdint>

#include "model/device/tensor.h"

namespace ripstop {

/// B packs of T positions, N = B * T rows; a pack holds one or more documents one after another. Views; all
/// int32. Every row belongs to exactly one document, and no document crosses the end of a pack.
struct Batch {
  std::int64_t sequences = 0;  ///< B
  std::int64_t positions = 0;  ///< T

  Tensor token;     ///< [N] input ids, in [0, V)
  Tensor position;  ///< [N] place within the document, from 0: what RoPE turns by
  /// [N + 1] (capacity; `documents` + 1 are used): document d is rows [document_offset[d], document_offset[d
  /// + 1]).
  Tensor document_offset;
  std::int64_t documents = 0;
  std::int64_t longest_document = 0;
  /// [N] the rows sorted by (token id, row): lets the embedding's backward add in a fixed order.
  Tensor token_order;
  /// [N] (capacity; `targets` are used): the rows whose prediction counts, ascending, and the id each must
  /// predict.
  Tensor target_row;
  Tensor target;
  std::int64_t targets = 0;

  std::int64_t rows() const { return sequences * positions; }
};

}  // namespace ripstop
