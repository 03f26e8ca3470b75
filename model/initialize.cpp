#include "model/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace ripstop {
namespace {

using Block = std::array<uint32_t, 4>;

Block philox(Block counter, uint64_t key) {
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

// FNV-1a. Any function of the name would serve, but it must never change: seeds would give other weights.
uint64_t hash(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return h;
}

// Two normal values from one block of random bits.
std::array<double, 2> normal_pair(uint64_t seed, uint64_t name, uint64_t index) {
  const Block bits = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                             static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32)},
                            seed);
  const auto uniform = [](uint32_t high, uint32_t low) {
    return (static_cast<double>((uint64_t{high} << 21) ^ (low >> 11)) + 0.5) * 0x1p-53;
  };
  const double radius = std::sqrt(-2 * std::log(uniform(bits[0], bits[1])));
  const double angle = 2 * std::numbers::pi * uniform(bits[2], bits[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Fills elements [first, first + count). `first` may be the second of a pair, whose first value is then
// dropped.
void fill_normal(double deviation, uint64_t seed, uint64_t name, int64_t first, int64_t count, float* out) {
  for (int64_t i = first; i < first + count; ++i) {
    const auto pair = normal_pair(seed, name, static_cast<uint64_t>(i / 2));
    *out++ = static_cast<float>(deviation * pair[static_cast<size_t>(i % 2)]);
    if (i % 2 == 0 && i + 1 < first + count) {
      *out++ = static_cast<float>(deviation * pair[1]);
      ++i;
    }
  }
}

}  // namespace

// Threads share the elements, because a model of 7 billion parameters takes one thread minutes. Each element
// depends on its place alone, so the result does not depend on the number of threads.
void initial_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out) {
  if (parameter.initial_deviation == 0) {
    std::fill_n(out, count, 1.0F);
    return;
  }
  constexpr int64_t kPiece = 512;
  const uint64_t name = hash(parameter.name);
#pragma omp parallel for if (count > 2 * kPiece)
  for (int64_t at = 0; at < count; at += kPiece)
    fill_normal(parameter.initial_deviation, seed, name, first + at, std::min(kPiece, count - at), out + at);
}

}  // namespace ripstop
