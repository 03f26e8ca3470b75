// Cross-entropy over a vocabulary that may be cut into slices, with x the logits of a row and t its target:
//   m = max_j x_j,  sum = sum_j e^(x_j - m)
//   loss = m + log(sum) - x_t,  dx_j = e^(x_j - m) / sum - [j = t]
#include <cmath>

#include "model/kernels/cpu/cpu_kernels.h"
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

/// The largest element but for NaN.
float row_maximum(const float* x, int64_t count) {
  constexpr int kChains = 4;  // chains of comparisons that do not wait for each other
  Vector best[kChains];
  for (auto& b : best) b = broadcast(kMinusInfinity);
  int64_t i = 0;
  for (; i + kChains * kLanes <= count; i += kChains * kLanes)
    for (int c = 0; c < kChains; ++c) best[c] = larger(load(x + i + c * kLanes), best[c]);
  float most = largest_lane(larger(larger(best[0], best[1]), larger(best[2], best[3])));
  for (; i < count; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

/// The sum of e^(x[i] - maximum).
float row_sum(const float* x, int64_t count, float maximum) {
  Vector sum{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) sum += exponential(load(x + i) - maximum);
  float total = sum_lanes(sum);
  for (; i < count; ++i) total += exponential(broadcast(x[i] - maximum))[0];
  return total;
}

/// Reads main memory once, because each block of 8 KiB stays in the first-level cache for the second pass.
void row_statistics(const float* x, int64_t count, float* maximum, float* sum) {
  constexpr int64_t kBlock = 2048;
  *maximum = kMinusInfinity;
  *sum = 0;
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = count - first < kBlock ? count - first : kBlock;
    const float most = row_maximum(x + first, size);
    if (most > *maximum) {
      *sum *= exponential(broadcast(*maximum - most))[0];
      *maximum = most;
    }
    *sum += row_sum(x + first, size, *maximum);
  }
}

/// A row's statistics, combined over all slices of the vocabulary.
struct RowStatistics {
  float maximum = kMinusInfinity, sum = 0, target = 0;
};
RowStatistics combine(const float* all, int64_t slices, int64_t stride) {
  RowStatistics row;
  for (int64_t s = 0; s < slices; ++s)
    row.maximum = all[s * stride] > row.maximum ? all[s * stride] : row.maximum;
  for (int64_t s = 0; s < slices; ++s) {
    const float* one = all + s * stride;
    // Skips a slice without valid columns, whose sum is 0 and whose maximum is -infinity.
    if (one[1] != 0) row.sum += one[1] * std::exp(one[0] - row.maximum);
    row.target += one[2];
  }
  return row;
}

/// dlogits = e^(x - maximum) / sum - [column == target]. A `target` outside [0, valid) is in another slice.
template <class T>
void gradient_row(const float* x, const RowStatistics& row, int64_t target, int64_t valid, int64_t columns,
                  T* dlogits) {
  const float scale = 1.0F / row.sum;
  const bool here = target >= 0 && target < valid;
  // Read before the loop, because dlogits may be the memory of x.
  const float target_logit = here ? x[target] : 0.0F;
  each_vector(valid, [&](int64_t i, auto lanes) {
    store(dlogits + i, exponential(load(x + i, lanes) - row.maximum) * scale, lanes);
  });
  for (int64_t i = valid; i < columns; ++i) dlogits[i] = T(0.0F);
  if (here) dlogits[target] = T(exponential(broadcast(target_logit - row.maximum))[0] * scale - 1.0F);
}

}  // namespace

void cross_entropy_statistics(const KernelCall&, const Tensor& logits, const Tensor& target,
                              const VocabularySlice& slice, const Tensor& statistics) {
  const int64_t columns = logits.cols();
  const int32_t* id = elements<int32_t>(target);
  parallel_rows(logits.rows(), columns, [&](int64_t n) {
    const float* x = elements<float>(logits) + n * columns;
    float* to = elements<float>(statistics) + 3 * n;
    const int64_t at = id[n] - slice.first;
    row_statistics(x, slice.valid, to, to + 1);
    to[2] = at >= 0 && at < slice.valid ? x[at] : 0.0F;
  });
}

void cross_entropy(const KernelCall&, const Tensor& logits, const Tensor& target, const Tensor& all,
                   const VocabularySlice& slice, const Tensor& loss, const Tensor& dlogits) {
  const int64_t columns = logits.cols(), slices = all.shape[0], stride = 3 * all.shape[1];
  const int32_t* id = elements<int32_t>(target);
  with_element(dlogits.dtype, [&](auto element) {
    using T = decltype(element);
    parallel_rows(logits.rows(), columns, [&](int64_t n) {
      const RowStatistics row = combine(elements<float>(all) + 3 * n, slices, stride);
      elements<float>(loss)[n] = row.maximum + std::log(row.sum) - row.target;
      if (dlogits.data != nullptr)
        gradient_row(elements<float>(logits) + n * columns, row, id[n] - slice.first, slice.valid, columns,
                     elements<T>(dlogits) + n * columns);
    });
  });
}

void argmax_rows(const KernelCall&, const Tensor& logits, const VocabularySlice& slice, const Tensor& value,
                 const Tensor& id) {
  const int64_t columns = logits.cols();
  parallel_rows(logits.rows(), columns, [&](int64_t n) {
    const float* x = elements<float>(logits) + n * columns;
    const float most = row_maximum(x, slice.valid);
    int64_t at = 0;
    while (at < slice.valid && x[at] != most) ++at;
    elements<float>(value)[n] = most;
    elements<int32_t>(id)[n] = static_cast<int32_t>(slice.first + (at < slice.valid ? at : 0));
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
