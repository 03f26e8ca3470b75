// RMSNorm of one row s of C columns, with the weight w: see add_rmsnorm.cpp for the formulas.
#pragma once
#include "model/kernels/cpu/vector.h"

namespace ripstop::RIPSTOP_INSTRUCTION_SET {

/// Returns r = 1 / sqrt(mean(s^2) + epsilon). `squares`: the sum of s^2.
inline float inverse_rms_of(float squares, int64_t columns, double epsilon) {
  // Once per row, float64 costs almost nothing.
  const double mean = static_cast<double>(squares) / static_cast<double>(columns);
  return static_cast<float>(1.0 / __builtin_sqrt(mean + epsilon));
}

template <class T>
void norm_row(const T* sum, const T* weight, float inverse, int64_t columns, T* normed) {
  each_vector(columns, [&](int64_t i, auto lanes) {
    store(normed + i, load(sum + i, lanes) * inverse * load(weight + i, lanes), lanes);
  });
}

/// Adds the row's share of dw to `dweight`, and ds to `dsum`. Without kAdds, ds overwrites dsum, which may
/// then be the memory of dnormed.
template <bool kAdds, class T>
void norm_row_backward(const T* dnormed, const T* sum, const T* weight, float inverse, int64_t columns,
                       T* dsum, float* dweight) {
  Vector dot{};
  each_vector(columns, [&](int64_t i, auto lanes) {
    const Vector dy = load(dnormed + i, lanes), s = load(sum + i, lanes);
    dot += dy * load(weight + i, lanes) * s;
    store(dweight + i, load(dweight + i, lanes) + dy * (s * inverse), lanes);
  });
  const float along = sum_lanes(dot) * inverse * inverse * inverse / static_cast<float>(columns);
  each_vector(columns, [&](int64_t i, auto lanes) {
    const Vector dy = load(dnormed + i, lanes), s = load(sum + i, lanes);
    Vector ds = dy * load(weight + i, lanes) * inverse - s * along;
    if constexpr (kAdds) ds = load(dsum + i, lanes) + ds;
    store(dsum + i, ds, lanes);
  });
}

}  // namespace ripstop::RIPSTOP_INSTRUCTION_SET
