#pragma once
#include <cstdint>
#include <vector>

#include "model/lora.h"
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"

namespace ripstop {

/// The k adapters of one physical matrix w of a layer, one for each adapted logical matrix in w. Adapter i
/// reads the input x [N, I] of w and adds to its logical matrix's columns of y = x w^T. r is the rank, p the
/// probability of dropout (0 except in training), f = scale / (1 - p), and m_i the adapter's own mask (0 or 1
/// per element of x):
///
///   u_i [N, r] = f (m_i x) a_i^T,   u [N, k r] = u_0 | u_1 | ...     the "low" rows
///   y[columns of i] += u_i b_i^T
///
/// Without dropout, one product computes all of u. With k = 0 only any() and width() may be called.
/// `first_row` is the row of the micro-batch at which x begins. Source: arXiv:2106.09685.
class Adapters {
 public:
  Adapters() = default;  ///< no adapters: k = 0
  /// Makes an adapter for each of the layer's `adapters` whose logical matrix is in `matrix`.
  Adapters(const PhysicalTensor& matrix, const std::vector<AdapterSpec>& adapters, const LoraConfig& lora,
           int64_t tensor_count);

  Parameter a;  ///< [k r, I], or [r, I / t] if the tensor axis cuts w by columns
  Parameter b;  ///< [sum of O / t over the k adapters, r], or [O, r] if the tensor axis cuts w by columns

  bool any() const { return !parts_.empty(); }
  /// The number of columns of u: k r.
  int64_t width() const { return rank_ * static_cast<int64_t>(parts_.size()); }

  /// u [N, k r] = f (m x) a^T.
  void down(Context& context, const Tensor& x, int64_t first_row, const Tensor& u) const;
  /// y [N, O] += u b^T.
  void up(Context& context, const Tensor& u, const Tensor& y) const;
  /// du [N, k r] = dy b, without the factor f. If the tensor axis cuts w by rows, sum du over the ranks
  /// before scale_low().
  void up_backward_input(Context& context, const Tensor& dy, const Tensor& du) const;
  /// b.gradient (+)= dy^T u, where b.accumulate chooses = or +=.
  void up_backward_weight(Context& context, const Tensor& dy, const Tensor& u) const;
  /// Multiplies low rows by f, which is cheaper than to multiply x or y.
  void scale_low(Context& context, const Tensor& du) const {
    scale(context, drops(context) ? scale_ / (1 - dropout_) : scale_, du);
  }
  /// a.gradient (+)= du^T (m x), where a.accumulate chooses = or +=.
  void down_backward_weight(Context& context, const Tensor& du, const Tensor& x, int64_t first_row) const;
  /// dx += m_i (du_i a_i) for each adapter i.
  void down_backward_input(Context& context, const Tensor& du, int64_t first_row, const Tensor& dx) const;

 private:
  struct Part {
    /// hash_of_name(name of `a`), for the key of the adapter's dropout mask
    uint64_t name = 0;
    /// the adapter's columns of y
    int64_t first_output = 0, outputs = 0;
    int64_t first_b = 0;  ///< first row of the adapter's part of b
  };
  bool drops(const Context& context) const { return context.dropout != nullptr && dropout_ > 0; }
  DropoutBits bits_of(const Context& context, const Part& part, int64_t first_row) const;
  Tensor of_part(const Tensor& low, size_t part) const {
    return low.column_range(static_cast<int64_t>(part) * rank_, rank_);
  }
  template <class Body>
  void each_input(Context& context, const Tensor& x, int64_t first_row, Body body) const;

  int64_t rank_ = 0;
  double scale_ = 0, dropout_ = 0;
  bool by_columns_ = false;
  std::vector<Part> parts_;
};

}  // namespace ripstop
