// Random bits as a function of a key and a counter: nothing is streamed, so nothing depends on an order.
#pragma once
#include <array>
#include <cstdint>

namespace ripstop {

using PhiloxBlock = std::array<uint32_t, 4>;

/// Four random words of `counter` under `key`. Source: Philox 4x32-10, Salmon et al., "Parallel Random
/// Numbers: As Easy as 1, 2, 3", SC 2011.
inline PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53U} * counter[0], b = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return counter;
}

/// A number above 0 and below 1, of 53 of the 64 bits.
inline double uniform_of(uint32_t high, uint32_t low) {
  return (static_cast<double>((uint64_t{high} << 21) ^ (low >> 11)) + 0.5) * 0x1p-53;
}

}  // namespace ripstop
