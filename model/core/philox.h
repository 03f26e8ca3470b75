// Random bits as a function of a key and a counter, so that results do not depend on the order of draws.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace ripstop {

using PhiloxBlock = std::array<uint32_t, 4>;

/// kPhiloxFactors multiply counter words 0 and 2; kPhiloxSteps are added to the two words of the key.
inline constexpr uint32_t kPhiloxFactors[] = {0xD2511F53U, 0xCD9E8D57U};
inline constexpr uint32_t kPhiloxSteps[] = {0x9E3779B9U, 0xBB67AE85U};
inline constexpr int kPhiloxRounds = 10;

/// Four random words of `counter` under `key`. Kernels have their own versions for processor vectors and
/// GPUs. Source: Philox 4x32-10, Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
inline PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t{kPhiloxFactors[0]} * counter[0], b = uint64_t{kPhiloxFactors[1]} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += kPhiloxSteps[0];
    k1 += kPhiloxSteps[1];
  }
  return counter;
}

/// The FNV-1a hash, for counters and keys. Another hash would give other initial weights for the same seed.
inline uint64_t hash_of_name(std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

/// A number in (0, 1], made of the 32 bits of `high` and the upper 21 bits of `low`.
inline double uniform_of(uint32_t high, uint32_t low) {
  return (static_cast<double>((uint64_t{high} << 21) ^ (low >> 11)) + 0.5) * 0x1p-53;
}

}  // namespace ripstop
