// What a measurement computes on: tensors on any device, filled with random numbers.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "model/ops/kernel_table.h"

namespace ripstop {

/// One run of something that is measured, and what it must do at least: FLOPs as model FLOPs (causal
/// attention as half), bytes read and written once.
struct Work {
  std::function<void()> run;  ///< gives work to the stream
  double flops = 0, bytes = 0;
};

/// Owns the operands of one measurement, all on the stream's device, which they must not outlive.
class Operands {
 public:
  Operands(const Stream& stream, DType dtype) : stream_(stream), dtype_(dtype) {}

  /// Normal numbers; `scale` is their standard deviation. int32 and float64: zeros.
  Tensor tensor(DType dtype, const Shape& shape, float scale = 1);
  /// The same in the activation dtype.
  Tensor tensor(const Shape& shape) { return tensor(dtype_, shape); }
  Tensor zeros(DType dtype, const Shape& shape);
  Tensor ids(const std::vector<int32_t>& values);
  Tensor numbers(const std::vector<float>& values);
  /// A call with so much scratch.
  KernelCall call(int64_t scratch_bytes = 0);

  DType dtype() const { return dtype_; }
  const Device& device() const { return stream_.device(); }
  const KernelTable& kernels() const { return ripstop::kernels(device().kind); }
  const WorkspaceTable& workspaces() const { return ripstop::workspaces(device().planned); }
  /// Of all operands so far.
  int64_t bytes() const { return ledger_.now().total(); }

 private:
  Tensor room(DType dtype, const Shape& shape);

  const Stream& stream_;
  DType dtype_;
  MemoryLedger ledger_;
  std::vector<Buffer> buffers_;
};

/// Bytes of all of them.
double bytes_of(std::initializer_list<Tensor> tensors);

}  // namespace ripstop
