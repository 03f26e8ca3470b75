// The work of kernels, for a model of time, for measurements, and for tests.
#pragma once
#include <array>
#include <cstdint>

#include "model/core/function_ref.h"
#include "model/device/dtype.h"

namespace ripstop {

/// The work of one call of a kernel: the least that it computes and moves.
struct KernelWork {
  const char* kernel = "";        ///< the name of the entry of KernelTable
  DType dtype = DType::kFloat32;  ///< dtype of the first operand
  /// Rows and columns of a product's result, and the elements that each of them sums; of attention: rows, the
  /// rows of the longest document, elements of a row's query heads; else rows and columns of the largest
  /// operand, and bytes for each of its elements.
  std::array<int64_t, 3> sizes{1, 1, 1};
  int64_t flops = 0;  ///< operations of a product or an attention (causal); 0 for all other kernels
  int64_t bytes = 0;  ///< bytes of the operands; an operand that is read and written counts twice
};

/// Runs the kernels of a stream. `kernel` computes, or on kMeta does nothing; an observer may leave it out.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  virtual void run(const KernelWork& work, FunctionRef<void()> kernel) = 0;
};

}  // namespace ripstop
