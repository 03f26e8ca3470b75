#include "parallel/rank_sum.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace ripstop {
namespace {

// Small enough for the first-level cache beside the pieces that are added to it.
constexpr std::int64_t kBlock = 2048;
// Below this, waking the threads costs more than they save.
constexpr std::int64_t kThreadedCount = 64 * 1024;

template <class From, class Sum>
void start(const From* from, Sum* sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Sum>(from[i]);
}

template <class From, class Sum>
void join(const From* from, Sum* sum, std::int64_t count, Reduce reduce) {
  if (reduce == Reduce::kSum) {
    for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Sum>(sum[i] + static_cast<Sum>(from[i]));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const Sum value = static_cast<Sum>(from[i]);
    sum[i] = value > sum[i] || value != value ? value : sum[i];
  }
}

template <class From, class Sum>
void fold(const void* data, std::int64_t first, Sum* sum, std::int64_t count, Reduce reduce, bool begins) {
  const From* from = static_cast<const From*>(data) + first;
  if (begins)
    start(from, sum, count);
  else
    join(from, sum, count, reduce);
}

template <class T, class Sum>
void reduce_block(const std::vector<RankPiece>& pieces, T* out, std::int64_t first, std::int64_t count,
                  Reduce reduce, Accumulate accumulate) {
  Sum sum[kBlock];
  bool begins = true;
  for (const RankPiece& piece : pieces) {
    if constexpr (std::is_same_v<Sum, float>) {
      if (piece.dtype == DType::kBFloat16)
        fold<BFloat16>(piece.data, first, sum, count, reduce, begins);
      else
        fold<float>(piece.data, first, sum, count, reduce, begins);
    } else {
      fold<T>(piece.data, first, sum, count, reduce, begins);
    }
    begins = false;
  }
  T* to = out + first;
  if (accumulate == Accumulate::kYes)
    for (std::int64_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(static_cast<Sum>(static_cast<Sum>(to[i]) + sum[i]));
  else
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(sum[i]);
}

template <class T, class Sum>
void reduce_all(const std::vector<RankPiece>& pieces, const Tensor& tensor, Reduce reduce,
                Accumulate accumulate) {
  T* out = tensor.as<T>();
  const std::int64_t count = tensor.count();
#pragma omp parallel for schedule(static) if (count >= kThreadedCount)
  for (std::int64_t first = 0; first < count; first += kBlock)
    reduce_block<T, Sum>(pieces, out, first, std::min(kBlock, count - first), reduce, accumulate);
}

}  // namespace

void reduce_in_rank_order(const std::vector<RankPiece>& pieces, const Tensor& out, Reduce reduce,
                          Accumulate accumulate) {
  RIPSTOP_CHECK(!pieces.empty() && out.device.kind == DeviceKind::kCpu, "{} pieces on {}", pieces.size(),
                device_name(out.device));
  for (const RankPiece& piece : pieces)
    RIPSTOP_CHECK(
        piece.dtype == out.dtype || (piece.dtype == DType::kBFloat16 && out.dtype == DType::kFloat32),
        "{} reduced into {}", dtype_name(piece.dtype), dtype_name(out.dtype));
  switch (out.dtype) {
    case DType::kFloat32:
      return reduce_all<float, float>(pieces, out, reduce, accumulate);
    case DType::kBFloat16:
      return reduce_all<BFloat16, float>(pieces, out, reduce, accumulate);
    case DType::kFloat64:
      return reduce_all<double, double>(pieces, out, reduce, accumulate);
    case DType::kInt32:
      return reduce_all<std::int32_t, std::int32_t>(pieces, out, reduce, accumulate);
  }
}

void round_in_place(void* numbers, std::int64_t count) {
  const auto* from = static_cast<const float*>(numbers);
  auto* to = static_cast<std::byte*>(numbers);
  // A block is written where only blocks lay that have been read.
  BFloat16 rounded[kBlock];
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t n = std::min(kBlock, count - first);
    for (std::int64_t i = 0; i < n; ++i) rounded[i] = BFloat16(from[first + i]);
    std::memcpy(to + first * 2, rounded, static_cast<std::size_t>(n * 2));
  }
}

}  // namespace ripstop
