// RMSNorm of each head x [D] of the queries and keys, with the weight w of queries or of keys.
//
//   forward    r = 1 / sqrt(mean(x^2) + epsilon),  y = x r w
//   backward   dx = r (dy w) - x r^3 / D * sum(dy w x),  dw = sum over rows and heads of dy x r
//
// A warp works on one head of a row at a time and holds it in registers. Backward, with k groups of rows: a
// warp takes one head of every kth row and sums its own dw; then sum_rows() adds up the dw of all warps.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/row_sums.cuh"
#include "model/kernels/cuda/vector.cuh"
#include "model/kernels/cuda_workspace_sizes.h"

namespace ripstop::cuda {
namespace {

constexpr int kWarps = 8;  ///< warps of a block, each with its own head
/// Pairs of elements that a lane holds. 32 lanes hold the largest head of attention without cuDNN.
constexpr int kHeld = static_cast<int>(kPlainHeadSize) / 64;

struct Places {
  int query, normed, heads;  ///< numbers of heads: H, H + K and H + 2 K
  int size;                  ///< D
  float epsilon;
};

/// The pairs of a head that one lane holds; elements beyond D are 0.
struct HeldHead {
  Floats<2> pair[kHeld];
};

/// Calls body(j, i) for each pair j that this lane holds, with the index i of its first element.
template <class Body>
__device__ void each_pair(int size, Body body) {
#pragma unroll
  for (int j = 0; j < kHeld; ++j) {
    const int i = 2 * (lane_number() + 32 * j);
    if (i < size) body(j, i);
  }
}

template <class T>
__device__ HeldHead load_head(const T* from, int size) {
  HeldHead head{};
  each_pair(size, [&](int j, int i) { head.pair[j] = load<2>(from + i); });
  return head;
}

/// The sum over all elements of a * b, in every lane.
__device__ float dot(const HeldHead& a, const HeldHead& b) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kHeld; ++j)
    sum += a.pair[j].at[0] * b.pair[j].at[0] + a.pair[j].at[1] * b.pair[j].at[1];
  return warp_sum(sum);
}

__device__ float inverse_rms_of(const HeldHead& x, const Places& p) {
  return inverse_root(dot(x, x) / static_cast<float>(p.size), p.epsilon);
}

template <class T>
__global__ void __launch_bounds__(32 * kWarps) forward(const T* qkv, const T* weight, T* out, Places p) {
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp_number();
  if (head >= p.heads) return;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * p.heads + head) * p.size;
  HeldHead x = load_head(qkv + at, p.size);
  if (head < p.normed) {
    const float inverse = inverse_rms_of(x, p);
    const HeldHead w = load_head(weight + (head < p.query ? 0 : p.size), p.size);
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      for (int c = 0; c < 2; ++c) x.pair[j].at[c] *= inverse * w.pair[j].at[c];
  }
  each_pair(p.size, [&](int j, int i) { store(out + at + i, x.pair[j]); });
}

/// dweight [groups * (H + K), D]: first the rows of query heads, then the rows of key heads.
template <class T>
__global__ void __launch_bounds__(32 * kWarps)
    backward(const T* qkv, const T* weight, T* dqkv, float* dweight, int64_t rows, Places p) {
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp_number();
  if (head >= p.normed) return;
  const HeldHead w = load_head(weight + (head < p.query ? 0 : p.size), p.size);
  HeldHead dw{};
  for (int64_t n = blockIdx.x; n < rows; n += gridDim.x) {
    const int64_t at = (n * p.heads + head) * p.size;
    const HeldHead x = load_head(qkv + at, p.size);
    HeldHead d = load_head(dqkv + at, p.size);
    const float inverse = inverse_rms_of(x, p);
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      for (int c = 0; c < 2; ++c) {
        dw.pair[j].at[c] += d.pair[j].at[c] * (x.pair[j].at[c] * inverse);
        d.pair[j].at[c] *= w.pair[j].at[c];
      }
    const float along = dot(d, x) * inverse * inverse * inverse / static_cast<float>(p.size);
#pragma unroll
    for (int j = 0; j < kHeld; ++j)
      for (int c = 0; c < 2; ++c) d.pair[j].at[c] = d.pair[j].at[c] * inverse - x.pair[j].at[c] * along;
    each_pair(p.size, [&](int j, int i) { store(dqkv + at + i, d.pair[j]); });
  }
  const bool query = head < p.query;
  const int64_t group = blockIdx.x, before = query ? 0 : static_cast<int64_t>(gridDim.x) * p.query;
  const int64_t row =
      before + group * (query ? p.query : p.normed - p.query) + (query ? head : head - p.query);
  each_pair(p.size, [&](int j, int i) { store(dweight + row * p.size + i, dw.pair[j]); });
}

Places places_of(const Heads& heads, double epsilon) {
  if (heads.size > kPlainHeadSize)
    throw Error(ExitCode::kResources, fmt::format("heads with a norm have {} elements; the limit is {}",
                                                  heads.size, kPlainHeadSize));
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  return {number(heads.query), number(heads.query + heads.key_value),
          number(heads.query + 2 * heads.key_value), number(heads.size), static_cast<float>(epsilon)};
}

}  // namespace

void norm_heads(const KernelCall& call, const Tensor& qkv, const Tensor& weight, double epsilon,
                const Heads& heads, const Tensor& out) {
  const Places places = places_of(heads, epsilon);
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    launch(call, "norm_heads", forward<T>, {qkv.rows(), divide_up(places.heads, kWarps)}, 32 * kWarps,
           elements<T>(qkv), elements<T>(weight), elements<T>(out), places);
  });
}

void norm_heads_backward(const KernelCall& call, const Tensor& qkv, const Tensor& weight, double epsilon,
                         const Heads& heads, const Tensor& dqkv, const Tensor& dweight,
                         Accumulate accumulate) {
  const Places places = places_of(heads, epsilon);
  const int64_t groups = norm_heads_groups(qkv.rows(), heads.query + heads.key_value);
  auto* partial = static_cast<float*>(call.workspace);
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    launch(call, "norm_heads_backward", backward<T>, {groups, divide_up(places.normed, kWarps)}, 32 * kWarps,
           elements<T>(qkv), elements<T>(weight), elements<T>(dqkv), partial, qkv.rows(), places);
  });
  if (dweight.empty()) return;
  // The sums below run on the kernel's stream, and so after all partial sums are written.
  const int64_t queries = groups * heads.query, keys = groups * heads.key_value, size = heads.size;
  auto* dw = elements<float>(dweight);
  sum_rows(call, "norm_heads_backward", partial, queries, size, accumulate, dw);
  sum_rows(call, "norm_heads_backward", partial + queries * size, keys, size, accumulate, dw + size);
}

}  // namespace ripstop::cuda
