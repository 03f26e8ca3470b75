// y = m x or y += m x, where m is 0 or 1, as the element's random word decides (DropoutBits in ops.h).
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/philox_words.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

/// The upper half of the row's Philox counter: the position in the sequence, and the sequence's number.
uint64_t place_of(const DropoutBits& bits, int64_t row) {
  const int64_t at = bits.first_row + row;
  const int64_t sequence = bits.first_sequence + at / bits.sequence_length * bits.sequence_step;
  return static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(at % bits.sequence_length);
}

/// `x` with zeros where the word is below the threshold.
[[gnu::always_inline]] inline Vector kept(Vector x, const uint32_t* words, uint32_t threshold, AllLanes) {
  Bits word;
  __builtin_memcpy(&word, words, sizeof word);
  const Bits is_kept = reinterpret_cast<Bits>(word >= threshold);
  return reinterpret_cast<Vector>(reinterpret_cast<Bits>(x) & is_kept);
}
[[gnu::always_inline]] inline Vector kept(Vector x, const uint32_t* words, uint32_t threshold,
                                          FirstLanes first) {
  alignas(64) uint32_t own[kLanes] = {};
  for (int64_t i = 0; i < first.count; ++i) own[i] = words[i];
  return kept(x, own, threshold, AllLanes{});
}

template <bool kAdds>
void drop(const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  const int64_t columns = x.cols();
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(x.rows(), columns, [&](int64_t row) {
      const T* from = elements<T>(x) + row * columns;
      T* to = elements<T>(y) + row * columns;
      each_words(bits.first_column, columns, place_of(bits, row), bits.key,
                 [&](int64_t column, int64_t count, const uint32_t* words) {
                   each_vector(count, [&](int64_t i, auto lanes) {
                     Vector value = kept(load(from + column + i, lanes), words + i, bits.threshold, lanes);
                     if constexpr (kAdds) value += load(to + column + i, lanes);
                     store(to + column + i, value, lanes);
                   });
                 });
    });
  });
}

}  // namespace

void dropout(const KernelCall&, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  drop<false>(x, bits, y);
}

void add_dropout(const KernelCall&, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  drop<true>(x, bits, y);
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
