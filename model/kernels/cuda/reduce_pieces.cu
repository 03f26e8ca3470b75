// out (+)= pieces[0] + pieces[1] + ..., added in this order in float32 and rounded once.
#include "model/kernels/cuda/cuda_kernels.h"
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kElements = 8;  ///< elements of a thread: 16 bytes of bfloat16

// The pieces are a kernel parameter, because the kernel may run after the caller's vector is gone.
struct PieceTable {
  const void* data[kMostPieces];
  bool is_bfloat16[kMostPieces];
  int count;
};
static_assert(sizeof(PieceTable) <= 4000, "kernel parameters may take 4 KiB");

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    sum_pieces(const PieceTable pieces, T* out, bool adds, int64_t count) {
  with_part<kWidth>(grid_thread() * kWidth, count, [&](auto width, int64_t i) {
    Floats<width.value> sum{};
    for (int p = 0; p < pieces.count; ++p) {
      const Floats<width.value> x = pieces.is_bfloat16[p]
                                        ? load<width.value>(static_cast<const BFloat16*>(pieces.data[p]) + i)
                                        : load<width.value>(static_cast<const float*>(pieces.data[p]) + i);
#pragma unroll
      for (int c = 0; c < width.value; ++c) sum.at[c] = p == 0 ? x.at[c] : sum.at[c] + x.at[c];
    }
    if (adds) {
      const Floats<width.value> before = load<width.value>(out + i);
#pragma unroll
      for (int c = 0; c < width.value; ++c) sum.at[c] = before.at[c] + sum.at[c];
    }
    store(out + i, sum);
  });
}

bool aligned_to_16(const void* data) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

}  // namespace

void reduce_pieces(const KernelCall& call, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Accumulate accumulate) {
  RIPSTOP_CHECK(out.dtype == DType::kFloat32 || out.dtype == DType::kBFloat16,
                "CUDA reduces only float32 and bfloat16, not {}", to_string(out.dtype));
  if (pieces.size() > kMostPieces)
    throw Error(ExitCode::kResources,
                fmt::format("{} ranks reduce in bfloat16; the limit is {}", pieces.size(), kMostPieces),
                "set precision.reduce = \"float32\", or let neither mesh.fsdp nor mesh.replicate be larger");
  PieceTable table{};
  bool wide = aligned_to_16(out.data);
  for (const RankPiece& piece : pieces) {
    table.data[table.count] = piece.data;
    table.is_bfloat16[table.count++] = piece.dtype == DType::kBFloat16;
    wide = wide && aligned_to_16(piece.data);
  }
  with_element(out.dtype, [&](auto element) {
    with_width<kElements>(wide, [&](auto width) {
      launch(call, "reduce_pieces", sum_pieces<width.value, decltype(element)>,
             {divide_up(out.count(), kThreads * width.value)}, kThreads, table,
             elements<decltype(element)>(out), accumulate == Accumulate::kYes, out.count());
    });
  });
}

}  // namespace ripstop::cuda
