#include "parallel/round_to_bfloat16.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "model/device/dtype.h"

namespace ripstop {

void round_to_bfloat16(void* numbers, int64_t count) {
  const auto* from = static_cast<const float*>(numbers);
  auto* to = static_cast<std::byte*>(numbers);
  constexpr int64_t kBlock = 2048;
  // The buffer holds a block until all numbers that the block will overwrite have been read.
  BFloat16 rounded[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    for (int64_t i = 0; i < n; ++i) rounded[i] = BFloat16(from[first + i]);
    std::memcpy(to + first * 2, rounded, static_cast<size_t>(n * 2));
  }
}

}  // namespace ripstop
