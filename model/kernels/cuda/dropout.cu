// y = m x or y += m x, where m is 0 or 1, as the element's random word decides (DropoutBits in ops.h). Each
// thread takes the four elements of a Philox block, or one element where blocks are not aligned.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/philox.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;

template <int kWidth, bool kAdds, class T>
__global__ void __launch_bounds__(kThreads)
    drop_elements(const T* x, T* y, DropoutBits bits, int64_t columns, int64_t count) {
  const int64_t i = grid_thread() * kWidth;
  if (i >= count) return;
  const int64_t row = bits.first_row + i / columns, column = bits.first_column + i % columns;
  const int64_t sequence = bits.first_sequence + row / bits.sequence_length * bits.sequence_step;
  const Words words = philox(
      static_cast<uint64_t>(column / 4),
      static_cast<uint64_t>(sequence) << 32 | static_cast<uint64_t>(row % bits.sequence_length), bits.key);
  const Floats<kWidth> from = load<kWidth>(x + i);
  Floats<kWidth> to = {};
  if constexpr (kAdds) to = load<kWidth>(y + i);
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    const uint32_t word = kWidth == 1 ? word_at(words, column % 4) : words.at[c];
    if (word >= bits.threshold) to.at[c] += from.at[c];
  }
  store(y + i, to);
}

template <bool kAdds>
void drop(const KernelCall& call, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  const int64_t columns = x.cols(), count = x.count();
  const bool whole = aligned(8, columns, {&x, &y}) && columns % 4 == 0 && bits.first_column % 4 == 0 &&
                     (x.dtype == DType::kBFloat16 || aligned(16, columns, {&x, &y}));
  with_element(x.dtype, [&](auto element) {
    using T = decltype(element);
    with_width<4>(whole, [&](auto width) {
      launch(call, "dropout", drop_elements<width.value, kAdds, T>,
             {divide_up(count, int64_t{kThreads} * width.value)}, kThreads, elements<T>(x), elements<T>(y),
             bits, columns, count);
    });
  });
}

}  // namespace

void dropout(const KernelCall& call, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  drop<false>(call, x, bits, y);
}

void add_dropout(const KernelCall& call, const Tensor& x, const DropoutBits& bits, const Tensor& y) {
  drop<true>(call, x, bits, y);
}

}  // namespace ripstop::cuda
