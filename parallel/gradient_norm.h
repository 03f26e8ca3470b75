#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// The squared norms of a rank's gradient shards in one step. start() computes on a separate stream beside
/// the model's products: norms are bound by memory, products are not. The norms are added in unit order. Owns
/// the stream, its workspace and two float64 a unit.
class GradientNorm {
 public:
  /// `largest`: elements of the largest shard. `stream`: the stream of the model.
  GradientNorm(const Stream& stream, MemoryLedger& ledger, size_t units, int64_t largest);

  /// Starts to compute the squared norm of `gradient`, the shard of unit `unit` without the elements for
  /// take_replicated(), on this object's stream, after the work given to `writer` so far.
  void start(size_t unit, const Tensor& gradient, const Stream& writer);
  /// Computes the squared norm of the unit's elements that are the same on all ranks of the tensor axis, in
  /// stream order.
  void take_replicated(Context& context, size_t unit, const Tensor& gradient) {
    add_squared_norm(context, gradient, of(unit, true));
  }
  /// Adds all squared norms to total [1] float64, in stream order, and clears them.
  void finish(Context& context, const Tensor& total);

 private:
  Tensor all() const;
  Tensor of(size_t unit, bool replicated) const;

  Stream stream_;
  size_t units_;
  Buffer memory_;
};

}  // namespace ripstop
