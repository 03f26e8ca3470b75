// HostTokens: the arrays of a batch in host memory, as every producer of tokens hands them to the model.
#pragma once
#include <cstdint>
#include <span>

namespace ripstop {

/// A view of N rows of tokens. Batch (model/batch.h) explains the arrays and has them on the device.
struct HostTokens {
  std::span<const int32_t> token;     ///< [N]
  std::span<const int32_t> position;  ///< [N]
  std::span<const int32_t> target;    ///< [N] the id to predict, -1 if the row's prediction does not count
  std::span<const int32_t> document_offset;  ///< [document_count + 1], first 0, last N
};

}  // namespace ripstop
