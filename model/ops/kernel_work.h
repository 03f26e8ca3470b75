#pragma once
#include <array>
#include <cstdint>

#include "model/core/function_ref.h"
#include "model/device/dtype.h"

namespace ripstop {

/// The work of one call of a kernel, for predictions of time, measurements and tests.
struct KernelWork {
  const char* kernel = "";        ///< the name of the entry of KernelTable
  DType dtype = DType::kFloat32;  ///< dtype of the first tensor that is no index
  /// Product: rows and columns of the result, terms of each sum. Attention: rows, rows of the longest
  /// document, H * D. Other kernels: rows and columns of the largest operand (no table), `bytes` per element.
  std::array<int64_t, 3> sizes{1, 1, 1};
  int64_t flops = 0;  ///< operations of a product or an attention (causal); 0 for all other kernels
  int64_t bytes = 0;  ///< estimate of the bytes that the kernel reads and writes
};

/// Runs the kernels of a stream. `kernel` queues the computation, and on kMeta does nothing; run() need not
/// call it.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  virtual void run(const KernelWork& work, FunctionRef<void()> kernel) = 0;
};

}  // namespace ripstop
