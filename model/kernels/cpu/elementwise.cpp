// Sums of float32 add up each block of a fixed size in float64, then the blocks' sums in order, so the bits
// are the same for any number of threads.
#include <cstring>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

constexpr int64_t kBlock = 16384;  ///< elements of one task
constexpr int kPartialSums = 8;    ///< independent float64 sums, so that their additions overlap

template <class Term>
void add_terms(const KernelCall& call, const Tensor& x, const Tensor& total, Term term) {
  const float* from = elements<float>(x);
  double* sums = static_cast<double*>(call.workspace);
  const int64_t count = x.count();
  parallel_blocks(count, kBlock, 1, [&](int64_t first, int64_t size) {
    double partial[kPartialSums] = {};
    int64_t i = first;
    for (; i + kPartialSums <= first + size; i += kPartialSums)
      for (int j = 0; j < kPartialSums; ++j) partial[j] += term(static_cast<double>(from[i + j]));
    for (; i < first + size; ++i) partial[0] += term(static_cast<double>(from[i]));
    sums[first / kBlock] = 0;
    for (const double p : partial) sums[first / kBlock] += p;
  });
  double sum = 0;
  for (int64_t b = 0; b * kBlock < count; ++b) sum += sums[b];
  *elements<double>(total) += sum;
}

}  // namespace

void gather_rows(const KernelCall& call, const Tensor& x, const Tensor& index, const Tensor& out) {
  embedding(call, index, x, 0, out);
}

void scatter_rows(const KernelCall&, const Tensor& x, const Tensor& index, const Tensor& out) {
  const int64_t row_bytes = out.cols() * element_bytes(out.dtype);
  const int32_t* at = elements<int32_t>(index);
  parallel_rows(x.rows(), out.cols(), [&](int64_t m) {
    std::memcpy(elements<char>(out) + at[m] * row_bytes, elements<char>(x) + m * row_bytes,
                static_cast<size_t>(row_bytes));
  });
}

int64_t add_sum_bytes(int64_t count) {
  return (count + kBlock - 1) / kBlock * 8;
}
void add_sum(const KernelCall& call, const Tensor& x, const Tensor& total) {
  if (x.dtype == DType::kFloat64) {
    for (int64_t i = 0; i < x.count(); ++i) *elements<double>(total) += elements<double>(x)[i];
    return;
  }
  add_terms(call, x, total, [](double value) { return value; });
}
void add_squared_norm(const KernelCall& call, const Tensor& x, const Tensor& total) {
  add_terms(call, x, total, [](double value) { return value * value; });
}

void fill_zero(const KernelCall&, const Tensor& x) {
  const int64_t size = element_bytes(x.dtype);
  parallel_blocks(x.count(), kBlock, 1, [&](int64_t first, int64_t count) {
    std::memset(elements<char>(x) + first * size, 0, static_cast<size_t>(count * size));
  });
}

void convert(const KernelCall&, const Tensor& x, const Tensor& y) {
  with_element(x.dtype, [&](auto from_element) {
    with_element(y.dtype, [&](auto to_element) {
      const auto* from = elements<decltype(from_element)>(x);
      auto* to = elements<decltype(to_element)>(y);
      parallel_blocks(x.count(), kBlock, 1, [&](int64_t first, int64_t count) {
        each_vector(count, [&](int64_t i, auto lanes) {
          store(to + first + i, load(from + first + i, lanes), lanes);
        });
      });
    });
  });
}

void scale(const KernelCall&, double factor, const Tensor& x) {
  const Vector by = broadcast(static_cast<float>(factor));
  with_element(x.dtype, [&](auto element) {
    auto* at = elements<decltype(element)>(x);
    parallel_blocks(x.count(), kBlock, 1, [&](int64_t first, int64_t count) {
      each_vector(count, [&](int64_t i, auto lanes) {
        store(at + first + i, load(at + first + i, lanes) * by, lanes);
      });
    });
  });
}

void add(const KernelCall&, const Tensor& x, const Tensor& y) {
  const float* from = elements<float>(x);
  float* to = elements<float>(y);
  parallel_blocks(x.count(), kBlock, 1, [&](int64_t first, int64_t count) {
    each_vector(count, [&](int64_t i, auto lanes) {
      store(to + first + i, load(to + first + i, lanes) + load(from + first + i, lanes), lanes);
    });
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
