// A plain matrix product on the host, for the stand-in of cuBLASLt.
#pragma once
#include <cstdint>

namespace ripstop::emulated {

/// A matrix in memory: element (row, column) is element row * row_step + column * column_step.
struct Matrix {
  void* data = nullptr;
  bool is_bfloat16 = false;  ///< else float32
  int64_t rows = 0, columns = 0, row_step = 1, column_step = 1;
};

/// D = alpha A B + beta C, with A [m, k], B [k, n], C and D [m, n]. Every sum is taken in float32 in the
/// order of k, and D is rounded once. C is not read if beta is 0; it may be D.
void multiply(const Matrix& a, const Matrix& b, const Matrix& c, const Matrix& d, float alpha, float beta);

}  // namespace ripstop::emulated
