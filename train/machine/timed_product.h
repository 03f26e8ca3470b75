// TimedProduct: a matrix product that is large enough for the full speed of a device.
#pragma once
#include <cstdint>

#include "model/device/arena.h"
#include "model/device/device.h"
#include "model/device/dtype.h"
#include "model/ops/tensor_axis.h"

namespace ripstop {

/// One product y = x w^T on a device, to be timed. Owns its memory, which is in no ledger but its own: on a
/// CPU 4 MiB, and 2 MiB a thread in float32; on a GPU 256 MiB in bfloat16; and what the kernels need.
class TimedProduct {
 public:
  TimedProduct(const Device& device, DType compute);

  /// Of one product.
  int64_t flops() const { return 2 * rows_ * inner_ * columns_; }
  /// Computes it `times` times; returns the nanoseconds that took, at least 1.
  int64_t run(int64_t times);

 private:
  MemoryUse scratch() const;

  Stream stream_;
  const WholeAxis axis_;
  MemoryLedger ledger_;
  DType compute_;
  int64_t rows_, inner_, columns_;
  Buffer x_, w_, y_;
  Arena arena_;
};

}  // namespace ripstop
