#pragma once
#include <cstdint>

#include "model/device/arena.h"
#include "model/device/device.h"
#include "model/device/dtype.h"
#include "model/ops/tensor_axis.h"

namespace ripstop {

/// A product y = x w^T with a square w, large enough for a device's full speed. Owns its memory, which the
/// caller's ledger does not count: on a CPU, in float32, 4 MiB plus 2 MiB for each thread; on a GPU, in
/// bfloat16, 384 MiB; and on every device, scratch of the kernels.
class TimedProduct {
 public:
  /// `compute`: the dtype of x, w and y. Computes one product, because the first one makes the kernel.
  TimedProduct(const Device& device, DType compute);

  /// FLOP of one product.
  int64_t flops() const { return 2 * rows_ * inner_ * inner_; }
  /// Computes the product `times` times. Returns the seconds taken, at least 1e-9.
  double run(int64_t times);

 private:
  MemoryUse scratch() const;

  Stream stream_;
  const WholeAxis axis_;
  MemoryLedger ledger_;
  DType compute_;
  int64_t rows_, inner_;
  Buffer x_, w_, y_;
  Arena arena_;
};

}  // namespace ripstop
