// Sums over rows. Each block of rows has its own sum, and the blocks' sums are added in order. The blocks
// depend on the number of rows alone, so a sum has the same bits for any number of threads.
#pragma once
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

inline constexpr int64_t kMaxBlocks = 64;
inline constexpr int64_t kMinBlockRows = 16;

inline int64_t block_rows(int64_t rows) {
  const int64_t even = (rows + kMaxBlocks - 1) / kMaxBlocks;
  return even < kMinBlockRows ? kMinBlockRows : even;
}

/// Bytes of the workspace of sum_rows().
inline int64_t row_sums_bytes(int64_t rows, int64_t columns) {
  if (rows == 0) return 0;
  const int64_t block = block_rows(rows);
  return 4 * columns * ((rows + block - 1) / block);
}

/// Calls add(n, sums), which adds the terms of row n to sums [columns], for all rows. If `total` is not null,
/// total [columns] (+)= the sums of all rows. `weight`: elements that `add` reads for a row.
template <class Add>
void sum_rows(void* workspace, int64_t rows, int64_t columns, int64_t weight, float* total, bool accumulate,
              Add add) {
  auto* partial = static_cast<float*>(workspace);
  const int64_t block = block_rows(rows), blocks = (rows + block - 1) / block;
  parallel_blocks(rows, block, weight, [&](int64_t first, int64_t count) {
    float* sums = partial + first / block * columns;
    for (int64_t i = 0; i < columns; ++i) sums[i] = 0;
    for (int64_t n = first; n < first + count; ++n) add(n, sums);
  });
  if (total == nullptr) return;
  each_vector(columns, [&](int64_t i, auto lanes) {
    Vector sum = accumulate ? load(total + i, lanes) : Vector{};
    for (int64_t b = 0; b < blocks; ++b) sum += load(partial + b * columns + i, lanes);
    store(total + i, sum, lanes);
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
