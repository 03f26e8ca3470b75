// HostTokens: the arrays of a batch in host memory, before Batch (model/batch.h) has them on the device.
#pragma once
#include <cstdint>
#include <span>

namespace ripstop {

/// A view of N rows of tokens.
struct HostTokens {
  std::span<const int32_t> token;     ///< [N]
  std::span<const int32_t> position;  ///< [N] position in the document, from 0
  std::span<const int32_t> target;    ///< [N] the id to predict, -1 if the row's prediction does not count
  std::span<const int32_t> document_offset;  ///< [document_count + 1], first 0, last N
};

}  // namespace ripstop
