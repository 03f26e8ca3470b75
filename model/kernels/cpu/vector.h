// A processor vector of float32. Files that include this header are compiled once per instruction set, each
// time in another namespace (RIPSTOP_INSTRUCTION_SET of model/CMakeLists.txt). They must not emit inline
// functions of shared headers, such as std::min, because the linker keeps one copy of each, which might use
// instructions that the processor lacks (tests/model/instruction_sets_test.sh).
#pragma once
#include <omp.h>

#include <cstdint>
#include <utility>

#include "model/device/dtype.h"
#include "model/device/tensor.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

using Vector [[gnu::vector_size(4 * kLanes)]] = float;
using Bits [[gnu::vector_size(4 * kLanes)]] = uint32_t;
using Halves [[gnu::vector_size(2 * kLanes)]] = uint16_t;

/// The lanes that are in memory: all, or the first `count`. The other lanes are loaded as 0 and not stored.
struct AllLanes {};
struct FirstLanes {
  int64_t count;
};

[[gnu::always_inline]] inline Vector broadcast(float x) {
  // x - 0 is x for every x, so the compiler drops the subtraction. x + 0 would turn -0 into 0.
  return x - Vector{};
}

[[gnu::always_inline]] inline Vector load(const float* p, AllLanes = {}) {
  Vector v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
[[gnu::always_inline]] inline Vector load(const BFloat16* p, AllLanes = {}) {
  Halves h;
  __builtin_memcpy(&h, p, sizeof h);
  const Bits bits = __builtin_convertvector(h, Bits) << 16;
  return reinterpret_cast<Vector>(bits);
}
template <class T>
[[gnu::always_inline]] inline Vector load(const T* p, FirstLanes first) {
  alignas(64) T lanes[kLanes] = {};
  for (int64_t i = 0; i < first.count; ++i) lanes[i] = p[i];
  return load(lanes);
}

[[gnu::always_inline]] inline void store(float* p, Vector v, AllLanes = {}) {
  __builtin_memcpy(p, &v, sizeof v);
}
/// Rounds as BFloat16's constructor does: to nearest, ties to even; NaN stays NaN.
[[gnu::always_inline]] inline void store(BFloat16* p, Vector v, AllLanes = {}) {
  const Bits u = reinterpret_cast<Bits>(v);
  const Bits rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  const Bits nan = (u >> 16) | 0x40U;
  const Halves h = __builtin_convertvector((u & 0x7fffffffU) > 0x7f800000U ? nan : rounded, Halves);
  __builtin_memcpy(static_cast<void*>(p), &h, sizeof h);
}
template <class T>
[[gnu::always_inline]] inline void store(T* p, Vector v, FirstLanes first) {
  alignas(64) T lanes[kLanes];
  store(lanes, v);
  for (int64_t i = 0; i < first.count; ++i) p[i] = lanes[i];
}

/// Calls body(first, AllLanes) for every whole vector, then body(first, FirstLanes) for the rest.
template <class Body>
[[gnu::always_inline]] inline void each_vector(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, AllLanes{});
  if (i < count) body(i, FirstLanes{count - i});
}

template <uint32_t... kLane>
constexpr Bits lane_numbers(std::integer_sequence<uint32_t, kLane...>) {
  return Bits{kLane...};
}
/// 0, 1, 2, ...
inline constexpr Bits kLaneNumbers = lane_numbers(std::make_integer_sequence<uint32_t, kLanes>{});

template <auto kPlace, class AnyVector, int... kLane>
[[gnu::always_inline]] inline AnyVector shuffle_lanes(AnyVector a, AnyVector b,
                                                      std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, kPlace(kLane)...);
}
/// Lane n of the result is lane kPlace(n) of `a` followed by `b`.
template <auto kPlace, class AnyVector>
[[gnu::always_inline]] inline AnyVector shuffled(AnyVector a, AnyVector b) {
  return shuffle_lanes<kPlace>(a, b, std::make_integer_sequence<int, sizeof a / sizeof a[0]>{});
}

/// Returns the larger of a and b, but b if a or b is NaN.
[[gnu::always_inline]] inline Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}
[[gnu::always_inline]] inline Vector smaller(Vector a, Vector b) {
  return a < b ? a : b;
}
/// Adds the upper half of the lanes to the lower half until one lane is left, so the order is fixed.
[[gnu::always_inline]] inline float sum_lanes(Vector v) {
  float lanes[kLanes];
  store(lanes, v);
  for (int n = kLanes / 2; n > 0; n /= 2)
    for (int i = 0; i < n; ++i) lanes[i] += lanes[i + n];
  return lanes[0];
}
[[gnu::always_inline]] inline float largest_lane(Vector v) {
  float lanes[kLanes];
  store(lanes, v);
  float best = lanes[0];
  for (int i = 1; i < kLanes; ++i) best = lanes[i] > best ? lanes[i] : best;
  return best;
}

/// e^x for x <= 88.3. From -87.3 on, the error is at most 2 units in the last place; below, the result is
/// almost 0. NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2. The result is the Taylor polynomial
/// of degree 7 for e^r, times 2^n.
[[gnu::always_inline]] inline Vector exponential(Vector x) {
  constexpr float kMagic = 12582912.0F;  // 1.5 * 2^23: adding it moves the nearest integer into the low bits
  x = larger(broadcast(-88.0F), x);
  const Vector shifted = x * 1.44269504F + kMagic;
  const Vector n = shifted - kMagic;
  // ln 2 in two parts. The first part has few bits, so its product with n is exact and r keeps all digits.
  const Vector r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  Vector p = r * 1.9841270e-4F + 1.3888889e-3F;
  p = p * r + 8.3333333e-3F;
  p = p * r + 4.1666667e-2F;
  p = p * r + 1.6666667e-1F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // The low bits of `shifted` are n. A float32 with exponent field n + 127 is 2^n.
  const Bits power = (reinterpret_cast<Bits>(shifted) + 127U) << 23;
  return p * reinterpret_cast<Vector>(power);
}

/// The elements of `t`; null if `t` is null. Does not check the dtype.
template <class T>
[[gnu::always_inline]] inline T* elements(const Tensor& t) {
  return static_cast<T*>(t.data);
}

/// Calls body(T{}) with the element type T of an activation dtype.
template <class Body>
[[gnu::always_inline]] inline void with_element(DType dtype, Body body) {
  if (dtype == DType::kBFloat16) {
    body(BFloat16{});
  } else {
    body(float{});
  }
}

/// With fewer elements, starting threads takes longer than it saves.
inline constexpr int64_t kParallelElements = 16384;

/// Cuts `total` items into consecutive blocks of `block` items and calls body(first, count) for each, in
/// parallel. The blocks do not depend on the number of threads. `weight`: elements per item.
template <class Body>
inline void parallel_blocks(int64_t total, int64_t block, int64_t weight, Body body) {
  const int64_t blocks = (total + block - 1) / block;
#pragma omp parallel for schedule(static) if (blocks > 1 && total * weight > kParallelElements)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * block;
    body(first, total - first < block ? total - first : block);
  }
}
template <class Body>
inline void parallel_rows(int64_t rows, int64_t columns, Body body) {
  parallel_blocks(rows, 1, columns, [&](int64_t row, int64_t) { body(row); });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
