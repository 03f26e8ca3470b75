// y += bias in each row; dbias = sum over rows of dy.
#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/row_sums.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

void add_bias(const KernelCall&, const Tensor& bias, const Tensor& y) {
  const int64_t columns = y.cols();
  with_element(y.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(y.rows(), columns, [&](int64_t n) {
      T* row = elements<T>(y) + n * columns;
      each_vector(columns, [&](int64_t i, auto lanes) {
        store(row + i, load(row + i, lanes) + load(elements<T>(bias) + i, lanes), lanes);
      });
    });
  });
}

int64_t add_bias_backward_bytes(int64_t rows, int64_t columns) {
  return row_sums_bytes(rows, columns);
}

void add_bias_backward(const KernelCall& call, const Tensor& dy, const Tensor& dbias, Accumulate accumulate) {
  const int64_t columns = dy.cols();
  with_element(dy.dtype, [&](auto element) {
    using T = decltype(element);
    sum_rows(call.workspace, dy.rows(), columns, columns, elements<float>(dbias),
             accumulate == Accumulate::kYes, [&](int64_t n, float* sums) {
               each_vector(columns, [&](int64_t i, auto lanes) {
                 store(sums + i, load(sums + i, lanes) + load(elements<T>(dy) + n * columns + i, lanes),
                       lanes);
               });
             });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
