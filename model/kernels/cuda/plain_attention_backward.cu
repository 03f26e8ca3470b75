// Gradient of attention, with p as in plain_attention.cu. Sums over i cover all query heads that read key j:
//
//   delta_i = do_i . o_i
//   ds_ij = p_ij (do_i . v_j - delta_i)
//   dq_i = sum_j ds_ij k_j / sqrt(D),  dk_j = sum_i ds_ij q_i / sqrt(D),  dv_j = sum_i p_ij do_i
//
// One warp per query row and head for dq, one warp per key row and key-value head for dk and dv. Both compute
// p again, but no sum crosses warps, so the order is fixed without atomics.
#include "model/kernels/cuda/plain_attention.cuh"

namespace ripstop::cuda {
namespace {

template <class T>
struct Backward : AttentionSizes {
  const T *dout, *qkv, *out;
  const float* log_sum_exp;
  float* delta;  ///< [N, H]
  T* dqkv;

  __device__ int key_value_heads() const { return heads / group; }
  __device__ int64_t key_at(int64_t n, int64_t key_value_head) const {
    return n * row + (heads + key_value_head) * size;
  }
};

template <int kPerLane, class T>
__device__ void put_head(const float (&from)[kPerLane], int size, float scale, T* to) {
#pragma unroll
  for (int e = 0; e < kPerLane; ++e) {
    const int i = lane_number() + 32 * e;
    if (i < size) store(to + i, Floats<1>{{from[e] * scale}});
  }
}

/// Computes dq, and delta for key_gradient, which runs later on this kernel's stream.
template <int kWidth, int kPerLane, class T>
__global__ void __launch_bounds__(32 * kAttentionWarps, 1) query_gradient(Backward<T> x) {
  __shared__ float queries[kAttentionWarps][32 * kPerLane], douts[kAttentionWarps][32 * kPerLane];
  __shared__ Shown shown[kAttentionWarps];
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kAttentionWarps + warp_number();
  if (n >= x.rows) return;  // the whole warp may return, since no barrier of the block follows
  const int64_t head = blockIdx.y, at = n * x.heads + head;
  float delta = 0;
  for (int i = lane_number(); i < x.size; i += 32)
    delta += load<1>(x.dout + at * x.size + i).at[0] * load<1>(x.out + at * x.size + i).at[0];
  delta = warp_sum(delta);
  if (lane_number() == 0) x.delta[at] = delta;
  float *query = queries[warp_number()], *dout = douts[warp_number()];
  take_head(x.qkv + n * x.row + head * x.size, x.size, x.scale, query);
  take_head(x.dout + at * x.size, x.size, 1.0F, dout);
  __syncwarp();
  const float log_sum_exp = x.log_sum_exp[at];
  float dquery[kPerLane] = {};
  int set = 0;
  for (int64_t first = document_of(x.offset, x.documents, n).begin; first <= n; first += 32, set ^= 1) {
    float* dscore = shown[warp_number()].sets[set];
    const int count = n + 1 - first < 32 ? static_cast<int>(n + 1 - first) : 32;
    const T* key = x.qkv + x.key_at(first, head / x.group);
    float own = 0;
    if (lane_number() < count) {
      const T* mine = key + lane_number() * x.row;
      const float p = expf(dot<kWidth>(mine, query, x.size) - log_sum_exp);
      own = p * (dot<kWidth>(mine + x.key_value_heads() * x.size, dout, x.size) - delta);
    }
    dscore[lane_number()] = own;
    __syncwarp();
    add_weighted(key, StridedRows{x.row}, 0, count, dscore, x.size, dquery);
  }
  put_head(dquery, x.size, x.scale, x.dqkv + n * x.row + head * x.size);
}

template <int kWidth, int kPerLane, class T>
__global__ void __launch_bounds__(32 * kAttentionWarps, 1) key_gradient(Backward<T> x) {
  __shared__ float keys[kAttentionWarps][32 * kPerLane], values[kAttentionWarps][32 * kPerLane];
  __shared__ Shown shown_weights[kAttentionWarps], shown_dscores[kAttentionWarps];
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kAttentionWarps + warp_number();
  if (n >= x.rows) return;
  float *key = keys[warp_number()], *value = values[warp_number()];
  const int64_t at = x.key_at(n, blockIdx.y), to_value = x.key_value_heads() * x.size;
  take_head(x.qkv + at, x.size, x.scale, key);
  take_head(x.qkv + at + to_value, x.size, 1.0F, value);
  __syncwarp();
  const int64_t end = document_of(x.offset, x.documents, n).end;
  const int64_t out_row = static_cast<int64_t>(x.heads) * x.size;
  // One warp takes all query heads that share the key, so that their sum stays in registers.
  float dkey[kPerLane] = {}, dvalue[kPerLane] = {};
  int set = 0;
  for (int64_t head = blockIdx.y * x.group; head < (blockIdx.y + 1) * x.group; ++head)
    for (int64_t first = n; first < end; first += 32, set ^= 1) {
      float* weight = shown_weights[warp_number()].sets[set];
      float* dscore = shown_dscores[warp_number()].sets[set];
      const int count = end - first < 32 ? static_cast<int>(end - first) : 32;
      const T* query = x.qkv + first * x.row + head * x.size;
      const T* dout = x.dout + first * out_row + head * x.size;
      float p = 0, own = 0;
      if (lane_number() < count) {
        const int64_t mine = (first + lane_number()) * x.heads + head;
        p = expf(dot<kWidth>(query + lane_number() * x.row, key, x.size) - x.log_sum_exp[mine]);
        own = p * (dot<kWidth>(dout + lane_number() * out_row, value, x.size) - x.delta[mine]);
      }
      weight[lane_number()] = p;
      dscore[lane_number()] = own;
      __syncwarp();
      add_weighted(query, StridedRows{x.row}, 0, count, dscore, x.size, dkey);
      add_weighted(dout, StridedRows{out_row}, 0, count, weight, x.size, dvalue);
    }
  put_head(dkey, x.size, x.scale, x.dqkv + at);
  put_head(dvalue, x.size, 1.0F, x.dqkv + at + to_value);
}

}  // namespace

void plain_attention_backward(const KernelCall& call, const Tensor& dout, const Tensor& qkv,
                              const Tensor& out, const Tensor& log_sum_exp, const Documents& documents,
                              const Heads& heads, const Tensor& dqkv) {
  with_element(qkv.dtype, [&](auto element) {
    using T = decltype(element);
    const Backward<T> x{sizes_of(qkv, documents, heads),
                        elements<T>(dout),
                        elements<T>(qkv),
                        elements<T>(out),
                        elements<float>(log_sum_exp),
                        static_cast<float*>(call.workspace),
                        elements<T>(dqkv)};
    with_head<T>(heads, {&qkv, &dout}, [&](auto width, auto per_lane) {
      const int64_t blocks = divide_up(qkv.rows(), kAttentionWarps);
      launch(call, "attention_backward", query_gradient<width.value, per_lane.value, T>,
             {blocks, heads.query}, 32 * kAttentionWarps, x);
      launch(call, "attention_backward", key_gradient<width.value, per_lane.value, T>,
             {blocks, heads.key_value}, 32 * kAttentionWarps, x);
    });
  });
}

}  // namespace ripstop::cuda
