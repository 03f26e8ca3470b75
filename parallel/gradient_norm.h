// GradientNorm: computes the squared norm of a rank's gradients while the backward of lower layers runs.
#pragma once
#include <cstdint>

#include "model/ops/ops.h"

namespace ripstop {

/// The squared norms of the gradient shards of one rank in one step. Each norm is computed as soon as the
/// gradient of its shard is complete, on a stream of its own, beside the model's products: norms are
/// memory-bound, products are not. The norms are added in the order of the units, whatever the order of
/// computation. Owns two float64 for each unit, and the workspace of its stream (category workspace).
class GradientNorm {
 public:
  /// Prepares for `units` units whose shards have at most `largest` elements. `stream` is the stream of the
  /// model.
  GradientNorm(const Stream& stream, MemoryLedger& ledger, size_t units, int64_t largest);

  /// Starts to compute the squared norm of `gradient`, which belongs to unit number `unit`, on the stream of
  /// this object. The computation begins after the work that `writer` has been given so far, which must
  /// complete the gradient.
  void start(size_t unit, const Tensor& gradient, const Stream& writer);
  /// Computes the squared norm of the elements of the unit that are the same on all ranks of the tensor axis,
  /// in stream order.
  void take_replicated(Context& context, size_t unit, const Tensor& gradient);
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
