// Causal attention within documents, with l_i the log of the sum of the exponentials:
//   p_ij = e^(q_i . k_j / sqrt(D) - l_i) for the keys j <= i of the same document,  o_i = sum_j p_ij v_j
// The warps of a block take neighbouring rows, so that the keys and values that they share are in the cache.
#include "model/kernels/cuda/plain_attention.cuh"

namespace ripstop::cuda {
namespace {

template <class T>
struct Forward : AttentionSizes {
  const T* qkv;
  T* out;
  float* log_sum_exp;
};

template <int kWidth, int kPerLane, class T>
__global__ void __launch_bounds__(32 * kAttentionWarps, 1) forward(Forward<T> x) {
  __shared__ float queries[kAttentionWarps][32 * kPerLane];
  __shared__ Shown shown[kAttentionWarps];
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kAttentionWarps + warp_number();
  if (n >= x.rows) return;  // the whole warp may return, since no barrier of the block follows
  const int64_t head = blockIdx.y;
  float* query = queries[warp_number()];
  take_head(x.qkv + n * x.row + head * x.size, x.size, x.scale, query);
  __syncwarp();
  const int64_t begin = document_of(x.offset, x.documents, n).begin;
  const T* key = x.qkv + begin * x.row + (x.heads + head / x.group) * x.size;
  const T* value = key + x.heads / x.group * x.size;
  Softmax<kPerLane> s;
  attend<kWidth>(key, value, StridedRows{x.row}, n + 1 - begin, x.size, query, shown[warp_number()], s);
  const int64_t to = n * x.heads + head;
  if (lane_number() == 0) x.log_sum_exp[to] = s.maximum + logf(s.sum);
#pragma unroll
  for (int e = 0; e < kPerLane; ++e) {
    const int i = lane_number() + 32 * e;
    if (i < x.size) store(x.out + to * x.size + i, Floats<1>{{s.out[e] / s.sum}});
  }
}

}  // namespace

void plain_attention(const KernelCall& call, const Tensor& qkv, const Documents& documents,
                     const Heads& heads, const Tensor& out, const Tensor& log_sum_exp) {
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const Forward<T> x{sizes_of(qkv, documents, heads), elements<T>(qkv), elements<T>(out),
                       elements<float>(log_sum_exp)};
    with_head<T>(heads, {&qkv}, [&](auto width, auto per_lane) {
      launch(call, "attention", forward<width.value, per_lane.value, T>,
             {divide_up(qkv.rows(), kAttentionWarps), heads.query}, 32 * kAttentionWarps, x);
    });
  });
}

}  // namespace ripstop::cuda
