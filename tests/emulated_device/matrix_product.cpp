#include "tests/emulated_device/matrix_product.h"

#include <algorithm>
#include <vector>

#include "model/device/dtype.h"

namespace ripstop::emulated {
namespace {

float element(const Matrix& x, int64_t row, int64_t column) {
  const int64_t i = row * x.row_step + column * x.column_step;
  if (!x.is_bfloat16) return static_cast<const float*>(x.data)[i];
  return static_cast<float>(static_cast<const BFloat16*>(x.data)[i]);
}

void set(const Matrix& x, int64_t row, int64_t column, float value) {
  const int64_t i = row * x.row_step + column * x.column_step;
  if (x.is_bfloat16) {
    static_cast<BFloat16*>(x.data)[i] = BFloat16(value);
  } else {
    static_cast<float*>(x.data)[i] = value;
  }
}

// Rows [first_row, +rows) and columns [first_column, +columns) of x in float32, one column after another.
void pack(const Matrix& x, int64_t first_row, int64_t rows, int64_t first_column, int64_t columns,
          float* to) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) to[j * rows + i] = element(x, first_row + i, first_column + j);
}

// sums [rows, columns] += a [rows, depth] b [depth, columns], all one column after another.
void add_product(const float* a, const float* b, float* sums, int64_t rows, int64_t columns, int64_t depth) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t p = 0; p < depth; ++p) {
      const float factor = b[j * depth + p];
      const float* from = a + p * rows;
      float* to = sums + j * rows;
      for (int64_t i = 0; i < rows; ++i) to[i] += from[i] * factor;
    }
}

}  // namespace

void multiply(const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d, float alpha, float beta) {
  constexpr int64_t kRows = 256, kColumns = 64, kDepth = 128;  // parts that stay in the caches
  std::vector<float> part_a(kRows * kDepth), part_b(kDepth * kColumns), sums(kRows * kColumns);
  for (int64_t i = 0; i < d.rows; i += kRows)
    for (int64_t j = 0; j < d.columns; j += kColumns) {
      const int64_t rows = std::min(kRows, d.rows - i), columns = std::min(kColumns, d.columns - j);
      std::fill(sums.begin(), sums.end(), 0.0F);
      for (int64_t p = 0; p < a.columns; p += kDepth) {
        const int64_t depth = std::min(kDepth, a.columns - p);
        pack(a, i, rows, p, depth, part_a.data());
        pack(b, p, depth, j, columns, part_b.data());
        add_product(part_a.data(), part_b.data(), sums.data(), rows, columns, depth);
      }
      for (int64_t y = 0; y < columns; ++y)
        for (int64_t x = 0; x < rows; ++x) {
          float value = alpha * sums[static_cast<size_t>(y * rows + x)];
          if (beta != 0) value += beta * element(c, i + x, j + y);
          set(d, i + x, j + y, value);
        }
    }
}

}  // namespace ripstop::emulated
