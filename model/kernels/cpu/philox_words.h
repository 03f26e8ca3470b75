// Philox (model/core/philox.h) on processor vectors. Compiled once per instruction set.
#pragma once
#include "model/core/philox.h"
#include "model/kernels/cpu/vector.h"
#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

/// One word (number 0, 1, 2 or 3) of each of kBlocks Philox blocks, in the lower halves of the lanes; or
/// products of such words.
using Words [[gnu::vector_size(4 * kLanes)]] = uint64_t;
inline constexpr int kBlocks = kLanes / 2;

/// Words that store_words writes: four of each block.
inline constexpr int64_t kWordsAtOnce = 4 * kBlocks;

/// The lower half of each lane of `a`, times `factor`. Uses the instruction for 32 x 32 bits, because
/// compilers turn a plain 64-bit product into three multiplications.
[[gnu::always_inline]] inline Words product(Words a, uint64_t factor) {
#if defined(__AVX512F__)
  // The mask selects all lanes. The form without a mask makes g++ 12 warn about its own header.
  return reinterpret_cast<Words>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(a),
                                                        _mm512_set1_epi64(static_cast<int64_t>(factor))));
#elif defined(__AVX2__)
  return reinterpret_cast<Words>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(static_cast<int64_t>(factor))));
#elif defined(__SSE2__)
  return reinterpret_cast<Words>(
      _mm_mul_epu32(reinterpret_cast<__m128i>(a), _mm_set1_epi64x(static_cast<int64_t>(factor))));
#else
  return (a & 0xffffffffU) * factor;
#endif
}

template <uint64_t... kLane>
constexpr Words block_numbers(std::integer_sequence<uint64_t, kLane...>) {
  return Words{(kLane % 2 * (kBlocks / 2) + kLane / 2)...};
}
[[gnu::always_inline]] inline void store_pairs(Words first, Words second, uint32_t* to) {
  // Lane 2 i holds words of block i, lane 2 i + 1 words of block kBlocks / 2 + i. So the even lanes of
  // `first` and `second`, interleaved, are the first half of the words in order, and the odd lanes the rest.
  const Words low = shuffled<[](int n) { return n / 2 * 2 + n % 2 * kBlocks; }>(first, second);
  const Words high = shuffled<[](int n) { return n / 2 * 2 + 1 + n % 2 * kBlocks; }>(first, second);
  __builtin_memcpy(to, &low, sizeof low);
  __builtin_memcpy(to + kLanes, &high, sizeof high);
}

/// Writes the kWordsAtOnce words of the blocks {block, step}, {block + 1, step}, ... under `key` in order.
[[gnu::always_inline]] inline void store_words(uint64_t block, uint64_t step, uint64_t key, uint32_t* to) {
  constexpr Words kNumbers = block_numbers(std::make_integer_sequence<uint64_t, kBlocks>{});
  constexpr Words kLower = Words{} + 0xffffffffU;
  const Words number = block + kNumbers;
  Words c0 = number, c1 = number >> 32, c2 = Words{} + step, c3 = Words{} + (step >> 32);
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Words a = product(c0, kPhiloxFactors[0]), b = product(c2, kPhiloxFactors[1]);
    c0 = (b >> 32) ^ c1 ^ uint64_t { k0 };
    c1 = b;
    c2 = (a >> 32) ^ c3 ^ uint64_t { k1 };
    c3 = a;
    k0 += kPhiloxSteps[0];
    k1 += kPhiloxSteps[1];
  }
  store_pairs((c0 & kLower) | c1 << 32, (c2 & kLower) | c3 << 32, to);
}

/// Calls body(at, n, words) for pieces [at, at + n) of `count` elements. words[i] is the random word of
/// logical element l = first + at + i: word l mod 4 of block {l / 4, step} under `key`.
template <class Body>
[[gnu::always_inline]] inline void each_words(int64_t first, int64_t count, uint64_t step, uint64_t key,
                                              Body body) {
  constexpr int64_t kPiece = 1024;  // words in a piece, few enough for the first-level cache
  alignas(64) uint32_t words[kPiece + 2 * kWordsAtOnce];
  for (int64_t at = 0; at < count; at += kPiece) {
    const int64_t n = count - at < kPiece ? count - at : kPiece;
    // words of the first block that belong to elements before this piece
    const int64_t skipped = (first + at) % 4;
    for (int64_t i = 0; i < skipped + n; i += kWordsAtOnce)
      store_words(static_cast<uint64_t>((first + at - skipped + i) / 4), step, key, words + i);
    body(at, n, words + skipped);
  }
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
