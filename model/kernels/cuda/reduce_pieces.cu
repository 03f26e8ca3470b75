// out (+)= pieces[0] + pieces[1] + ..., added in this order in float32 and rounded once: what ranks sent each
// other in bfloat16, and sums that NCCL leaves beside where they belong. A thread has eight elements at a
// time, of all pieces.
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "model/device/cuda_device.h"
#include "model/kernels/cuda/cuda_kernels.h"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 8;

// Passed by value: launches may be queued long after the host's vector is gone.
struct PieceTable {
  const void* data[kMostPieces];
  std::uint8_t is_bfloat16[kMostPieces];
  int count;
};
static_assert(sizeof(PieceTable) <= 4000, "a launch takes 4 KiB of arguments");

__device__ void load(const float* from, float (&to)[kWidth]) {
  const auto* vector = reinterpret_cast<const float4*>(from);
  const float4 a = vector[0], b = vector[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w;
  to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
__device__ void load(const __nv_bfloat16* from, float (&to)[kWidth]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const unsigned pair[4] = {bits.x, bits.y, bits.z, bits.w};
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(pair[i] << 16);
    to[2 * i + 1] = __uint_as_float(pair[i] & 0xffff0000U);
  }
}

__device__ void store(const float (&from)[kWidth], float* to) {
  auto* vector = reinterpret_cast<float4*>(to);
  vector[0] = make_float4(from[0], from[1], from[2], from[3]);
  vector[1] = make_float4(from[4], from[5], from[6], from[7]);
}
__device__ void store(const float (&from)[kWidth], __nv_bfloat16* to) {
  unsigned pair[4];
  for (int i = 0; i < 4; ++i)
    pair[i] = __bfloat16_as_ushort(__float2bfloat16_rn(from[2 * i])) |
              static_cast<unsigned>(__bfloat16_as_ushort(__float2bfloat16_rn(from[2 * i + 1]))) << 16;
  *reinterpret_cast<uint4*>(to) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

template <class T>
__device__ float value(const void* data, std::int64_t i) {
  return static_cast<float>(static_cast<const T*>(data)[i]);
}

__device__ float sum_at(const PieceTable& pieces, std::int64_t i) {
  float sum = 0;
  for (int p = 0; p < pieces.count; ++p) {
    const float x =
        pieces.is_bfloat16[p] ? value<__nv_bfloat16>(pieces.data[p], i) : value<float>(pieces.data[p], i);
    sum = p == 0 ? x : sum + x;
  }
  return sum;
}

template <class T>
__global__ void sum_elements(const PieceTable pieces, T* out, std::int64_t count, bool adds) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const float sum = sum_at(pieces, i);
    out[i] = static_cast<T>(adds ? static_cast<float>(out[i]) + sum : sum);
  }
}

template <class T>
__global__ void sum_vectors(const PieceTable pieces, T* out, std::int64_t vectors, bool adds) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors;
       v += step) {
    float sum[kWidth], x[kWidth];
    for (int p = 0; p < pieces.count; ++p) {
      if (pieces.is_bfloat16[p])
        load(static_cast<const __nv_bfloat16*>(pieces.data[p]) + v * kWidth, x);
      else
        load(static_cast<const float*>(pieces.data[p]) + v * kWidth, x);
      for (int i = 0; i < kWidth; ++i) sum[i] = p == 0 ? x[i] : sum[i] + x[i];
    }
    if (adds) {
      load(out + v * kWidth, x);
      for (int i = 0; i < kWidth; ++i) sum[i] = x[i] + sum[i];
    }
    store(sum, out + v * kWidth);
  }
}

bool is_aligned(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
}

unsigned blocks_for(std::int64_t threads) {
  constexpr std::int64_t kMost = 1 << 14;
  return static_cast<unsigned>(std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, kMost));
}

template <class T>
void sum(const KernelCall& call, const PieceTable& pieces, const Tensor& out, bool adds) {
  bool aligned = is_aligned(out.data) && out.count() % kWidth == 0;
  for (int p = 0; p < pieces.count; ++p) aligned = aligned && is_aligned(pieces.data[p]);
  T* to = static_cast<T*>(out.data);
  const cudaStream_t stream = native_stream(call.stream);
  if (aligned) {
    const std::int64_t vectors = out.count() / kWidth;
    sum_vectors<T><<<blocks_for(vectors), kThreads, 0, stream>>>(pieces, to, vectors, adds);
  } else {
    sum_elements<T><<<blocks_for(out.count()), kThreads, 0, stream>>>(pieces, to, out.count(), adds);
  }
  check_launch("reduce_pieces");
}

}  // namespace

void reduce_pieces(const KernelCall& call, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Reduce reduce, Accumulate accumulate) {
  RIPSTOP_CHECK(reduce == Reduce::kSum && (out.dtype == DType::kFloat32 || out.dtype == DType::kBFloat16),
                "{} reduced on CUDA", dtype_name(out.dtype));
  if (pieces.size() > kMostPieces)
    throw Error(ExitCode::kResources,
                fmt::format("{} ranks send bfloat16 to each other, {} can", pieces.size(), kMostPieces),
                "set precision.reduce = \"float32\", or a larger mesh.replicate");
  PieceTable table{};
  for (const RankPiece& piece : pieces) {
    table.data[table.count] = piece.data;
    table.is_bfloat16[table.count++] = piece.dtype == DType::kBFloat16;
  }
  if (out.dtype == DType::kFloat32)
    sum<float>(call, table, out, accumulate == Accumulate::kYes);
  else
    sum<__nv_bfloat16>(call, table, out, accumulate == Accumulate::kYes);
}

}  // namespace ripstop::cuda
