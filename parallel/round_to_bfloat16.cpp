#include "parallel/round_to_bfloat16.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "model/device/dtype.h"

namespace ripstop {
namespace {

// Numbers converted at a time, through a buffer, because the results overwrite the numbers.
constexpr int64_t kBlock = 2048;

}  // namespace

void round_to_bfloat16(void* numbers, int64_t count) {
  const auto* from = static_cast<const float*>(numbers);
  auto* to = static_cast<std::byte*>(numbers);
  BFloat16 rounded[kBlock];
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    for (int64_t i = 0; i < n; ++i) rounded[i] = BFloat16(from[first + i]);
    std::memcpy(to + first * 2, rounded, static_cast<size_t>(n * 2));
  }
}

void widen_bfloat16(void* numbers, int64_t count) {
  auto* to = static_cast<float*>(numbers);
  const auto* from = static_cast<const std::byte*>(numbers);
  BFloat16 block[kBlock];
  // The last block comes first, so that no float32 overwrites a bfloat16 number that is still to be read.
  for (int64_t first = (count - 1) / kBlock * kBlock; first >= 0 && count > 0; first -= kBlock) {
    const int64_t n = std::min(kBlock, count - first);
    std::memcpy(block, from + first * 2, static_cast<size_t>(n * 2));
    for (int64_t i = 0; i < n; ++i) to[first + i] = static_cast<float>(block[i]);
  }
}

}  // namespace ripstop
