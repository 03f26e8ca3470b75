// Reduction of the pieces that several ranks sent, in the order of the ranks.
#pragma once
#include <vector>

#include "model/device/tensor.h"
#include "model/ops/ops.h"
#include "parallel/communicator.h"

namespace ripstop {

/// The elements of one rank, as they arrived.
struct RankPiece {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
};

/// out [n] (+)= pieces[0] + pieces[1] + ..., or their maximum (NaN wins), added in this order in float32
/// (float64 and int32 in themselves) and rounded once. Pieces have `n` elements each, of out's dtype or,
/// where that is float32, of bfloat16. A piece may be `out` itself. Host memory. Threads cut by fixed blocks,
/// so the bits do not depend on their number.
void reduce_in_rank_order(const std::vector<RankPiece>& pieces, const Tensor& out, Reduce reduce,
                          Accumulate accumulate);

/// Turns `count` float32 numbers into as many bfloat16 numbers, rounded to nearest even, at the beginning of
/// the same memory.
void round_in_place(void* numbers, std::int64_t count);

}  // namespace ripstop
