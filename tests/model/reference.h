// The formula of every operation in float64, as plain as possible. Kernels are tested against these formulas;
// reference_test.cpp tests their gradients against finite differences.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/device/dtype.h"
#include "model/ops/ops.h"

namespace ripstop::reference {

using Values = std::vector<double>;

inline size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

/// `x` rounded to `dtype`.
inline double stored(double x, DType dtype) {
  const auto f = static_cast<float>(x);
  return dtype == DType::kBFloat16 ? static_cast<double>(static_cast<float>(BFloat16(f)))
                                   : static_cast<double>(f);
}

/// c [m, n] = a [m, k] b [k, n]. A transposed operand is stored as [k, m] or [n, k].
inline Values product(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n, bool a_transposed,
                      bool b_transposed) {
  Values c(at(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        c[at(i * n + j)] +=
            a[at(a_transposed ? l * m + i : i * k + l)] * b[at(b_transposed ? j * k + l : l * n + j)];
  return c;
}

struct Norm {
  Values normed, inverse_rms;
};
inline Norm rmsnorm(const Values& sum, const Values& weight, int64_t rows, double epsilon) {
  const auto columns = static_cast<int64_t>(weight.size());
  Norm result{Values(sum.size()), Values(at(rows))};
  for (int64_t n = 0; n < rows; ++n) {
    double squares = 0;
    for (int64_t i = 0; i < columns; ++i) squares += sum[at(n * columns + i)] * sum[at(n * columns + i)];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    result.inverse_rms[at(n)] = inverse;
    for (int64_t i = 0; i < columns; ++i)
      result.normed[at(n * columns + i)] = sum[at(n * columns + i)] * inverse * weight[at(i)];
  }
  return result;
}

struct NormGradient {
  Values sum, weight;
};
inline NormGradient rmsnorm_backward(const Values& dnormed, const Values& sum, const Values& weight,
                                     const Values& inverse_rms) {
  const auto columns = static_cast<int64_t>(weight.size());
  NormGradient gradient{Values(sum.size()), Values(weight.size())};
  for (int64_t n = 0; n < static_cast<int64_t>(inverse_rms.size()); ++n) {
    const double r = inverse_rms[at(n)];
    double along = 0;
    for (int64_t i = 0; i < columns; ++i)
      along += dnormed[at(n * columns + i)] * weight[at(i)] * sum[at(n * columns + i)];
    for (int64_t i = 0; i < columns; ++i) {
      const double dy = dnormed[at(n * columns + i)], s = sum[at(n * columns + i)];
      gradient.sum[at(n * columns + i)] =
          dy * weight[at(i)] * r - s * r * r * r * along / static_cast<double>(columns);
      gradient.weight[at(i)] += dy * s * r;
    }
  }
  return gradient;
}

/// qkv [N, row] with a norm of each query and key head; weight [2D].
inline Values norm_heads(Values qkv, const Values& weight, double epsilon, const Heads& heads) {
  const auto half = static_cast<std::ptrdiff_t>(heads.size);
  for (size_t n = 0; n < qkv.size(); n += at(heads.row()))
    for (int64_t h = 0; h < heads.query + heads.key_value; ++h) {
      const auto head = qkv.begin() + static_cast<std::ptrdiff_t>(n) + h * half;
      const auto w = weight.begin() + (h < heads.query ? 0 : half);
      const Norm norm = rmsnorm({head, head + half}, {w, w + half}, 1, epsilon);
      std::copy(norm.normed.begin(), norm.normed.end(), head);
    }
  return qkv;
}
/// The gradients by qkv (in `sum`) and by weight.
inline NormGradient norm_heads_backward(Values dout, const Values& qkv, const Values& weight, double epsilon,
                                        const Heads& heads) {
  const auto half = static_cast<std::ptrdiff_t>(heads.size);
  NormGradient gradient{std::move(dout), Values(weight.size())};
  for (size_t n = 0; n < qkv.size(); n += at(heads.row()))
    for (int64_t h = 0; h < heads.query + heads.key_value; ++h) {
      const std::ptrdiff_t place = static_cast<std::ptrdiff_t>(n) + h * half, of = h < heads.query ? 0 : half;
      const auto part = [&](const Values& x, std::ptrdiff_t from) {
        return Values(x.begin() + from, x.begin() + from + half);
      };
      const Values head = part(qkv, place), w = part(weight, of);
      const NormGradient g =
          rmsnorm_backward(part(gradient.sum, place), head, w, rmsnorm(head, w, 1, epsilon).inverse_rms);
      std::copy(g.sum.begin(), g.sum.end(), gradient.sum.begin() + place);
      for (size_t i = 0; i < g.weight.size(); ++i) gradient.weight[at(of) + i] += g.weight[i];
    }
  return gradient;
}

/// Cosine and sine of the rotation angles [positions, size / 2, 2] for theta 10000.
inline Values angles(int64_t positions, int64_t size) {
  Values result;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = 0; i < size / 2; ++i) {
      const double angle = static_cast<double>(p) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(size));
      result.push_back(std::cos(angle));
      result.push_back(std::sin(angle));
    }
  return result;
}
inline Values rope(Values qkv, const std::vector<int32_t>& position, const Values& angle, const Heads& heads,
                   Direction direction) {
  for (size_t n = 0; n < position.size(); ++n)
    for (int64_t h = 0; h < heads.query + heads.key_value; ++h)
      for (int64_t i = 0; i < heads.size / 2; ++i) {
        double* pair = qkv.data() + static_cast<int64_t>(n) * heads.row() + h * heads.size + 2 * i;
        const double c = angle[at(position[n] * heads.size + 2 * i)];
        const double turn = direction == Direction::kForward ? 1 : -1;
        const double s = turn * angle[at(position[n] * heads.size + 2 * i + 1)];
        const double a = pair[0], b = pair[1];
        pair[0] = a * c - b * s;
        pair[1] = b * c + a * s;
      }
  return qkv;
}

/// The offsets of the parts of a row of q|k|v that query head h reads.
struct HeadPlace {
  int64_t query, key, value;
};
inline HeadPlace head_place(const Heads& heads, int64_t h) {
  const int64_t key = heads.query + h / (heads.query / heads.key_value);
  return {h * heads.size, key * heads.size, (key + heads.key_value) * heads.size};
}
inline double dot(const double* a, const double* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

struct Attention {
  Values out, log_sum_exp;
};
inline Attention attention(const Values& qkv, const std::vector<int32_t>& offset, const Heads& heads) {
  const int64_t rows = offset.back(), row = heads.row(), size = heads.size;
  Attention result{Values(at(rows * heads.query * size)), Values(at(rows * heads.query))};
  for (size_t d = 0; d + 1 < offset.size(); ++d)
    for (int64_t i = offset[d]; i < offset[d + 1]; ++i)
      for (int64_t h = 0; h < heads.query; ++h) {
        const HeadPlace place = head_place(heads, h);
        const double* q = qkv.data() + i * row + place.query;
        Values score;
        for (int64_t j = offset[d]; j <= i; ++j)
          score.push_back(dot(q, qkv.data() + j * row + place.key, size) /
                          std::sqrt(static_cast<double>(size)));
        const double most = *std::max_element(score.begin(), score.end());
        double sum = 0;
        for (const double s : score) sum += std::exp(s - most);
        result.log_sum_exp[at(i * heads.query + h)] = most + std::log(sum);
        for (int64_t j = offset[d]; j <= i; ++j)
          for (int64_t e = 0; e < size; ++e)
            result.out[at((i * heads.query + h) * size + e)] +=
                std::exp(score[at(j - offset[d])] - most) / sum * qkv[at(j * row + place.value + e)];
      }
  return result;
}

inline Values attention_backward(const Values& dout, const Values& qkv, const Attention& forward,
                                 const std::vector<int32_t>& offset, const Heads& heads) {
  const int64_t row = heads.row(), size = heads.size;
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  Values dqkv(qkv.size());
  for (size_t d = 0; d + 1 < offset.size(); ++d)
    for (int64_t i = offset[d]; i < offset[d + 1]; ++i)
      for (int64_t h = 0; h < heads.query; ++h) {
        const HeadPlace place = head_place(heads, h);
        const double* q = qkv.data() + i * row + place.query;
        const double* dy = dout.data() + (i * heads.query + h) * size;
        const double delta = dot(dy, forward.out.data() + (i * heads.query + h) * size, size);
        for (int64_t j = offset[d]; j <= i; ++j) {
          const double* k = qkv.data() + j * row + place.key;
          const double p = std::exp(dot(q, k, size) * scale - forward.log_sum_exp[at(i * heads.query + h)]);
          const double ds = p * (dot(dy, qkv.data() + j * row + place.value, size) - delta) * scale;
          for (int64_t e = 0; e < size; ++e) {
            dqkv[at(i * row + place.query + e)] += ds * k[e];
            dqkv[at(j * row + place.key + e)] += ds * q[e];
            dqkv[at(j * row + place.value + e)] += p * dy[e];
          }
        }
      }
  return dqkv;
}

inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

inline Values swiglu(const Values& gate_up, int64_t rows, int64_t columns) {
  Values out;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t i = 0; i < columns; ++i) {
      const double g = gate_up[at(2 * n * columns + i)];
      out.push_back(g * sigmoid(g) * gate_up[at((2 * n + 1) * columns + i)]);
    }
  return out;
}
inline Values swiglu_backward(const Values& gate_up, const Values& dout, int64_t rows, int64_t columns) {
  Values gradient(gate_up.size());
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t i = 0; i < columns; ++i) {
      const double g = gate_up[at(2 * n * columns + i)], u = gate_up[at((2 * n + 1) * columns + i)];
      const double s = sigmoid(g), dy = dout[at(n * columns + i)];
      gradient[at(2 * n * columns + i)] = dy * u * (s + g * s * (1 - s));
      gradient[at((2 * n + 1) * columns + i)] = dy * g * s;
    }
  return gradient;
}

struct CrossEntropy {
  Values loss, dlogits;
};
/// Loss and gradient of logits [M, columns], whose first `valid` columns count.
inline CrossEntropy cross_entropy(const Values& logits, const std::vector<int32_t>& target, int64_t columns,
                                  int64_t valid) {
  CrossEntropy result{{}, Values(logits.size())};
  for (size_t m = 0; m < target.size(); ++m) {
    const double* x = logits.data() + static_cast<int64_t>(m) * columns;
    const double most = *std::max_element(x, x + valid);
    double sum = 0;
    for (int64_t i = 0; i < valid; ++i) sum += std::exp(x[i] - most);
    result.loss.push_back(most + std::log(sum) - x[target[m]]);
    for (int64_t i = 0; i < valid; ++i)
      result.dlogits[m * at(columns) + at(i)] = std::exp(x[i] - most) / sum - (i == target[m] ? 1 : 0);
  }
  return result;
}

struct Moments {
  Values master, first, second;
};
inline Moments adamw(const AdamWStep& step, double factor, const Values& gradient, Moments x) {
  const auto t = static_cast<double>(step.step);
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double g = gradient[i] * factor;
    x.first[i] = step.beta1 * x.first[i] + (1 - step.beta1) * g;
    x.second[i] = step.beta2 * x.second[i] + (1 - step.beta2) * g * g;
    const double m = x.first[i] / (1 - std::pow(step.beta1, t));
    const double v = x.second[i] / (1 - std::pow(step.beta2, t));
    x.master[i] *= 1 - step.learning_rate * step.weight_decay;
    x.master[i] -= step.learning_rate * m / (std::sqrt(v) + step.epsilon);
  }
  return x;
}

}  // namespace ripstop::reference
