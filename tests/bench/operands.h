// Operands of a benchmark: tensors on any device, filled with random numbers.
#pragma once
#include <cstdint>
#include <functional>
#include <type_traits>
#include <vector>

#include "model/ops/kernel_table.h"

namespace ripstop {

/// One run of a benchmark and the least work that it must do: model FLOPs (causal attention counts half), and
/// the bytes of all operands read and written once.
struct Work {
  std::function<void()> run;  ///< gives work to the stream
  double flops = 0, bytes = 0;
};

/// The bytes and FLOPs of a Work, and the bytes of its workspace.
struct Cost {
  double bytes = 0, flops = 0;
  int64_t workspace = 0;
};

/// Owns the operands of one benchmark, all on the stream's device. The stream must outlive them.
class Operands {
 public:
  Operands(const Stream& stream, DType dtype) : stream_(stream), dtype_(dtype) {}

  /// Normally distributed numbers with standard deviation `scale`; zeros if int32 or float64.
  Tensor tensor(DType dtype, const Shape& shape, float scale = 1);
  /// The same in the activation dtype.
  Tensor tensor(const Shape& shape) { return tensor(dtype_, shape); }
  Tensor zeros(DType dtype, const Shape& shape);
  Tensor ids(const std::vector<int32_t>& values);
  Tensor numbers(const std::vector<float>& values);
  /// A call with a workspace of so many bytes.
  KernelCall call(int64_t workspace_bytes = 0);
  /// Runs of a kernel.
  template <class... Parameters>
  Work work(void (*KernelTable::*kernel)(const KernelCall&, Parameters...), const Cost& cost,
            std::type_identity_t<Parameters>... arguments) {
    const auto run = [=, on = call(cost.workspace), &k = kernels()] { (k.*kernel)(on, arguments...); };
    return {run, cost.flops, cost.bytes};
  }

  DType dtype() const { return dtype_; }
  const Device& device() const { return stream_.device(); }
  const KernelTable& kernels() const { return ripstop::kernels(device().kind); }
  const WorkspaceTable& workspaces() const { return ripstop::workspaces(device().planned); }
  /// The bytes of all operands so far.
  int64_t bytes() const { return ledger_.now().total(); }

 private:
  Tensor room(DType dtype, const Shape& shape);

  const Stream& stream_;
  DType dtype_;
  MemoryLedger ledger_;
  std::vector<Buffer> buffers_;
};

/// The bytes of all of them.
double bytes_of(std::initializer_list<Tensor> tensors);

}  // namespace ripstop
