// out (+)= pieces[0] + pieces[1] + ..., added in this order and rounded once to out's dtype.
#include <type_traits>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {
// The sums of a block, at most 16 KiB, stay in the first-level cache while the pieces are added.
constexpr int64_t kBlock = 2048;

/// Adds elements [first, first + count) of a piece to `sum`, or, if `begins`, sets `sum` to them.
template <class From, class Sum>
void fold(const void* data, int64_t first, Sum* sum, int64_t count, bool begins) {
  const From* from = static_cast<const From*>(data) + first;
  if (begins) {
    for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<Sum>(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) sum[i] = static_cast<Sum>(sum[i] + static_cast<Sum>(from[i]));
  }
}

template <class T, class Sum>
void reduce_block(const std::vector<RankPiece>& pieces, T* out, int64_t first, int64_t count,
                  Accumulate accumulate) {
  Sum sum[kBlock];
  bool begins = true;
  for (const RankPiece& piece : pieces) {
    if constexpr (std::is_same_v<Sum, float>) {
      if (piece.dtype == DType::kBFloat16)
        // This rank's piece may be float32 while other ranks' pieces arrived in bfloat16.
        fold<BFloat16>(piece.data, first, sum, count, begins);
      else
        fold<float>(piece.data, first, sum, count, begins);
    } else {
      fold<T>(piece.data, first, sum, count, begins);
    }
    begins = false;
  }
  T* to = out + first;
  if (accumulate == Accumulate::kYes)
    for (int64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(static_cast<Sum>(static_cast<Sum>(to[i]) + sum[i]));
  else
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(sum[i]);
}

template <class T, class Sum>
void reduce_all(const std::vector<RankPiece>& pieces, const Tensor& tensor, Accumulate accumulate) {
  T* out = elements<T>(tensor);
  parallel_blocks(tensor.count(), kBlock, std::ssize(pieces), [&](int64_t first, int64_t count) {
    reduce_block<T, Sum>(pieces, out, first, count, accumulate);
  });
}

}  // namespace

void reduce_pieces(const KernelCall&, const std::vector<RankPiece>& pieces, const Tensor& out,
                   Accumulate accumulate) {
  switch (out.dtype) {
    case DType::kFloat32:
      return reduce_all<float, float>(pieces, out, accumulate);
    case DType::kBFloat16:
      return reduce_all<BFloat16, float>(pieces, out, accumulate);
    case DType::kFloat64:
      return reduce_all<double, double>(pieces, out, accumulate);
    case DType::kInt32:
      return reduce_all<int32_t, int32_t>(pieces, out, accumulate);
  }
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
