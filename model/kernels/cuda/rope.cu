// A pair (a, b) becomes (a cos - b sin, b cos + a sin). One block per row.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;

/// Rotates the first `turned` elements of each row of qkv [N, row], the query and key heads. `sine_sign` is
/// -1 for backward. kWidth is even and divides `size`, so an access has whole pairs of one head.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) turn(T* qkv, const int32_t* position, const float* angle,
                                                 int64_t row, int turned, int size, float sine_sign) {
  T* heads = qkv + blockIdx.x * row;
  const float* cosine_sine = angle + static_cast<int64_t>(position[blockIdx.x]) * size;
  for (int i = static_cast<int>(threadIdx.x) * kWidth; i < turned;
       i += static_cast<int>(blockDim.x) * kWidth) {
    Floats<kWidth> x = load<kWidth>(heads + i);
    const Floats<kWidth> by = load<kWidth>(cosine_sine + i % size);
#pragma unroll
    for (int c = 0; c < kWidth; c += 2) {
      const float a = x.at[c], b = x.at[c + 1], sine = sine_sign * by.at[c + 1];
      x.at[c] = a * by.at[c] - b * sine;
      x.at[c + 1] = b * by.at[c] + a * sine;
    }
    store(heads + i, x);
  }
}

}  // namespace

void rope(const KernelCall& call, const Tensor& qkv, const Tensor& position, const Tensor& angle,
          const Heads& heads, Direction direction) {
  const auto turned = static_cast<int>((heads.query + heads.key_value) * heads.size);
  const auto size = static_cast<int>(heads.size);
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [&](auto width) {
      launch(call, "rope", turn<width.value, T>, {qkv.rows()}, row_threads(turned / width.value, 4, kThreads),
             elements<T>(qkv), elements<int32_t>(position), elements<float>(angle), heads.row(), turned, size,
             direction == Direction::kForward ? 1.0F : -1.0F);
    };
    if (aligned(16, size, {&qkv, &angle})) {
      run(Width<kWhole<T>>{});
    } else {
      run(Width<2>{});
    }
  });
}

}  // namespace ripstop::cuda
