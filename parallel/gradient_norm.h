// GradientNorm: the squared norm of a rank's gradients, taken while the layers below compute.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// The squared norms of the shards of one rank in one step. Each is taken as soon as its gradient is
/// complete, on a stream beside the model's, because it is bound by memory and the products there are not; on
/// the CPU at once. They are added up in the order of the units, whatever the order in which they were taken.
/// Owns two float64 a unit, and the workspace of its stream (category workspace).
class GradientNorm {
 public:
  /// For `units` units with shards of at most `largest` elements. `stream` is the model's.
  GradientNorm(const Stream& stream, MemoryLedger& ledger, size_t units, int64_t largest);

  /// Takes the norm of `gradient`, of unit number `unit`, beside the model's stream. The work given to
  /// `writer` so far completes the gradient.
  void start(size_t unit, const Tensor& gradient, const Stream& writer);
  /// Takes the norm of the unit's elements that all ranks of the tensor axis hold alike, in stream order.
  void take_replicated(Context& context, size_t unit, const Tensor& gradient);
  /// Adds all norms to total [1] float64, in stream order, and forgets them.
  void finish(Context& context, const Tensor& total);

 private:
  Tensor all() const;
  Tensor of(size_t unit, bool replicated) const;

  Stream stream_;
  size_t units_;
  Buffer memory_;
};

}  // namespace ripstop
