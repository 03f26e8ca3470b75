// Adapters: the products of LoRA adapters beside a frozen matrix. See model/lora.h.
#pragma once
#include <cstdint>
#include <vector>

#include "model/lora.h"
#include "model/ops/context.h"
#include "model/ops/ops.h"
#include "model/parameter.h"

namespace ripstop {

/// The k adapters of one physical matrix w of a layer, one for each adapted logical matrix in w. All read the
/// input x of w, and adapter i adds to the columns of its logical matrix in y = x w^T. With rank r, the
/// factor f = scale / (1 - p) and the mask m of dropout p, which each adapter draws for itself:
///
///   u_i [N, r] = f (m_i x) a_i^T,   u [N, k r] = u_0 | u_1 | ...     the "low" rows
///   y[columns of i] += u_i b_i^T
///
/// Without dropout one product makes all of u. With k = 0 only any() and width() may be called. `first_row`
/// is the row of the micro-batch at which the rows of x begin. Source: arXiv:2106.09685.
class Adapters {
 public:
  Adapters() = default;  ///< k = 0
  /// `adapters`: all adapters of a layer, of which those for `matrix` are taken.
  Adapters(const PhysicalTensor& matrix, const std::vector<AdapterSpec>& adapters, const LoraConfig& lora,
           int64_t tensor_count);

  Parameter a;  ///< [k r, I], or [r, I / t] if the axis cuts the matrix by columns
  Parameter b;  ///< [O / t of all k, r], or [O, r]

  bool any() const { return !parts_.empty(); }
  /// Columns of u: k r.
  int64_t width() const { return rank_ * static_cast<int64_t>(parts_.size()); }

  /// u [N, k r] = f (m x) a^T.
  void down(Context& context, const Tensor& x, int64_t first_row, const Tensor& u) const;
  /// y [N, O] += u b^T.
  void up(Context& context, const Tensor& u, const Tensor& y) const;
  /// du [N, k r] = dy b, without the factor f. The rows may be a rank's part of a sum: see scale_low.
  void up_backward_input(Context& context, const Tensor& dy, const Tensor& du) const;
  /// Writes or adds b.gradient = dy^T u.
  void up_backward_weight(Context& context, const Tensor& dy, const Tensor& u) const;
  /// du *= f. Call it once du is summed over the ranks.
  void scale_low(Context& context, const Tensor& du) const;
  /// Writes or adds a.gradient = du^T (m x).
  void down_backward_weight(Context& context, const Tensor& du, const Tensor& x, int64_t first_row) const;
  /// dx += m (du a).
  void down_backward_input(Context& context, const Tensor& du, int64_t first_row, const Tensor& dx) const;

 private:
  struct Part {
    uint64_t name = 0;                      ///< hash_of_name of the adapter's a, for its mask
    int64_t first_output = 0, outputs = 0;  ///< columns of y
    int64_t first_b = 0;                    ///< row of b
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
