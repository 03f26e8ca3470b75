#pragma once
#include <cstdint>
#include <span>

namespace ripstop {

/// N rows of tokens in host memory, as Batch (model/batch.h) has them on the device.
struct HostTokens {
  std::span<const int32_t> token;              ///< [N]
  std::span<const int32_t> position;           ///< [N] position in the document, from 0
  std::span<const int32_t> target;             ///< [N] the id to predict, -1 if the prediction does not count
  std::span<const int32_t> document_offset;    ///< [document_count + 1]; the first is 0, the last N
  std::span<const int32_t> sequence_set = {};  ///< [B] the data set of each sequence; empty: not known
};

}  // namespace ripstop
