#include "model/initialize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "model/core/philox.h"

namespace ripstop {
namespace {

// Two values from one Philox block: normal with standard deviation 1, or uniform between -1 and 1.
std::array<double, 2> random_pair(Initial::Kind kind, uint64_t seed, uint64_t name, uint64_t index) {
  const PhiloxBlock bits = philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                                   static_cast<uint32_t>(name), static_cast<uint32_t>(name >> 32)},
                                  seed);
  const double first = uniform_of(bits[0], bits[1]), second = uniform_of(bits[2], bits[3]);
  if (kind == Initial::Kind::kUniform) return {2 * first - 1, 2 * second - 1};
  const double radius = std::sqrt(-2 * std::log(first));
  const double angle = 2 * std::numbers::pi * second;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Writes elements [first, first + count) to `out`. An odd `first` is the second element of its pair.
void fill_random(const Initial& initial, uint64_t seed, uint64_t name, int64_t first, int64_t count,
                 float* out) {
  for (int64_t i = first; i < first + count; ++i) {
    const auto pair = random_pair(initial.kind, seed, name, static_cast<uint64_t>(i / 2));
    *out++ = static_cast<float>(initial.size * pair[static_cast<size_t>(i % 2)]);
    if (i % 2 == 0 && i + 1 < first + count) {
      *out++ = static_cast<float>(initial.size * pair[1]);
      ++i;
    }
  }
}

}  // namespace

// Runs in parallel, because one thread would take minutes for 7 billion parameters.
void initial_values(const ParameterSpec& parameter, uint64_t seed, int64_t first, int64_t count, float* out) {
  const Initial& initial = parameter.initial;
  if (initial.kind == Initial::Kind::kOnes || initial.kind == Initial::Kind::kZeros) {
    std::fill_n(out, count, initial.kind == Initial::Kind::kOnes ? 1.0F : 0.0F);
    return;
  }
  constexpr int64_t kPiece = 512;
  const uint64_t name = hash_of_name(parameter.name);
#pragma omp parallel for if (count > 2 * kPiece)
  for (int64_t at = 0; at < count; at += kPiece)
    fill_random(initial, seed, name, first + at, std::min(kPiece, count - at), out + at);
}

}  // namespace ripstop
