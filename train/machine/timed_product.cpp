#include "train/machine/timed_product.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "model/device/tensor.h"
#include "model/kernels/cpu/processor.h"
#include "model/ops/ops.h"

namespace ripstop {
namespace {

// The size on a CPU: for each thread half a GFLOP, enough for full speed, and 2 MiB, few enough for caches.
constexpr int64_t kRowsOfThread = 256, kSide = 1024;
// The size on a GPU, so that a product takes a millisecond or more even on a large GPU.
constexpr int64_t kGpuSide = 8192;

// 0x3c3c... is a small number in both dtypes. Unwritten pages would all map to one cached page of zeros, and
// products of zeros take a GPU less power.
void fill(const Stream& stream, const Buffer& buffer) {
  constexpr int64_t kPiece = int64_t{1} << 20;
  const std::vector<unsigned char> bytes(static_cast<size_t>(kPiece), 0x3c);
  for (int64_t at = 0; at < buffer.bytes(); at += kPiece)
    copy_bytes(stream, static_cast<unsigned char*>(buffer.data()) + at, bytes.data(),
               std::min(kPiece, buffer.bytes() - at));
  stream.synchronize();
}

}  // namespace

TimedProduct::TimedProduct(const Device& device, DType compute)
    : stream_(device),
      compute_(compute),
      rows_(device.kind == DeviceKind::kCuda ? kGpuSide : kRowsOfThread * cpu_threads()),
      inner_(device.kind == DeviceKind::kCuda ? kGpuSide : kSide),
      x_(device, ledger_, MemoryCategory::kWorkspace, rows_ * inner_ * element_bytes(compute)),
      w_(device, ledger_, MemoryCategory::kWorkspace, inner_ * inner_ * element_bytes(compute)),
      y_(device, ledger_, MemoryCategory::kWorkspace, rows_ * inner_ * element_bytes(compute)),
      arena_(device, ledger_, scratch()) {
  fill(stream_, x_);
  fill(stream_, w_);
  run(1);
}

// Scratch memory of the product's kernels, found by a run of the product on kMeta.
MemoryUse TimedProduct::scratch() const {
  const Device meta = Device::meta(stream_.device().kind);
  const Stream stream(meta);
  MemoryLedger ledger;
  Arena arena(meta, ledger);
  Context context{stream, arena, axis_};
  const Buffer any(meta, ledger, MemoryCategory::kWorkspace, 4 * std::max(rows_, inner_) * inner_);
  linear(context, tensor_in(any, 0, compute_, {rows_, inner_}), tensor_in(any, 0, compute_, {inner_, inner_}),
         tensor_in(any, 0, compute_, {rows_, inner_}));
  return arena.peak();
}

double TimedProduct::run(int64_t times) {
  const auto begin = std::chrono::steady_clock::now();
  Context context{stream_, arena_, axis_};
  for (int64_t i = 0; i < times; ++i)
    linear(context, tensor_in(x_, 0, compute_, {rows_, inner_}), tensor_in(w_, 0, compute_, {inner_, inner_}),
           tensor_in(y_, 0, compute_, {rows_, inner_}));
  stream_.synchronize();
  return std::max(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 1e-9);
}

}  // namespace ripstop
