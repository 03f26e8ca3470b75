// GradientNorm: the squared norm of a rank's gradients, computed beside the backward of lower layers.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// The squared norms of one rank's gradient shards in one step. Each is computed as soon as its gradient is
/// complete, on a stream of its own: norms are bound by memory, the model's products are not. They are added
/// in the order of the units, whatever order they were computed in. Owns two float64 a unit, and the
/// workspace of its stream (category workspace).
class GradientNorm {
 public:
  /// For `units` units with shards of at most `largest` elements. `stream` is the model's.
  GradientNorm(const Stream& stream, MemoryLedger& ledger, size_t units, int64_t largest);

  /// Computes the norm of `gradient`, of unit number `unit`, on the own stream, behind the work given to
  /// `writer` so far, which completes the gradient.
  void start(size_t unit, const Tensor& gradient, const Stream& writer);
  /// Computes the norm of the unit's elements that all ranks of the tensor axis hold alike, in stream order.
  void take_replicated(Context& context, size_t unit, const Tensor& gradient);
  /// Adds all norms to total [1] float64, in stream order, and clears them.
  void finish(Context& context, const Tensor& total);

 private:
  Tensor all() const;
  Tensor of(size_t unit, bool replicated) const;

  Stream stream_;
  size_t units_;
  Buffer memory_;
};

}  // namespace ripstop
