#pragma once
#include <cstdint>

#include "model/core/philox.h"

namespace ripstop::cuda {

/// The random words of one Philox block, for four neighbouring elements. Source: model/core/philox.h.
struct Words {
  uint32_t at[4];
};
/// Block {block, step} (two words each, the lower first) under `key`.
__device__ inline Words philox(uint64_t block, uint64_t step, uint64_t key) {
  uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                   static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)};
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < kPhiloxRounds; ++round) {
    // Copies, because device code cannot refer to an array of the host.
    constexpr uint64_t kFirst = kPhiloxFactors[0], kSecond = kPhiloxFactors[1];
    constexpr uint32_t kFirstStep = kPhiloxSteps[0], kSecondStep = kPhiloxSteps[1];
    const uint64_t a = kFirst * c[0], b = kSecond * c[2];
    c[0] = static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(b);
    c[2] = static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(a);
    k0 += kFirstStep;
    k1 += kSecondStep;
  }
  return {{c[0], c[1], c[2], c[3]}};
}

/// words.at[at]. An index known only at run time would move the words from registers to memory.
__device__ inline uint32_t word_at(const Words& words, int64_t at) {
  return at == 0 ? words.at[0] : at == 1 ? words.at[1] : at == 2 ? words.at[2] : words.at[3];
}

}  // namespace ripstop::cuda
