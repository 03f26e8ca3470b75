// Sums over rows in a fixed order.
#pragma once
#include "model/kernels/cuda/launch.h"
#include "model/kernels/cuda/reduce.cuh"
#include "model/kernels/cuda/vector.cuh"

namespace ripstop::cuda {

/// total (+)= the sum of `count` rows. Each block adds up 32 columns: each warp sums every 32nd row, one
/// column per lane (contiguous reads), and then the 32 partial sums of one column.
template <class T>
__global__ void __launch_bounds__(1024)
    add_rows(const T* rows, int64_t count, int64_t columns, bool accumulate, float* total) {
  __shared__ float sums[32][33];  // 33: the 32 numbers of a column lie in different banks
  const int64_t first = static_cast<int64_t>(blockIdx.x) * 32;
  float sum = 0;
  if (first + lane_number() < columns)
    for (int64_t n = warp_number(); n < count; n += 32)
      sum += load<1>(rows + n * columns + first + lane_number()).at[0];
  sums[warp_number()][lane_number()] = sum;
  __syncthreads();
  sum = warp_sum(sums[lane_number()][warp_number()]);
  const int64_t column = first + warp_number();
  if (lane_number() == 0 && column < columns) total[column] = (accumulate ? total[column] : 0.0F) + sum;
}

/// total [columns] (+)= the sum of rows [count, columns]. Asynchronous.
template <class T>
void sum_rows(const KernelCall& call, const char* name, const T* rows, int64_t count, int64_t columns,
              Accumulate accumulate, float* total) {
  launch(call, name, add_rows<T>, {divide_up(columns, 32)}, 1024, rows, count, columns,
         accumulate == Accumulate::kYes, total);
}

}  // namespace ripstop::cuda
