// Stand-ins of the CUDA run time: allocation, copies, fills. See CALLS.md for what the real ones do.
#include <cstring>
#include <vector>

#include "tests/emulated_device/cuda_runtime.h"
#include "tests/emulated_device/device_memory.h"
#include "tests/emulated_device/scheduler.h"

namespace ripstop::emulated {
namespace {

using MemoryKind = MemoryFacts::Kind;

// Whether a copy or a fill may touch this memory: blocks that the device knows must hold all of it.
bool fits(const MemoryFacts& facts, const void* data, size_t bytes) {
  return facts.kind == MemoryKind::kPageable || within_block(facts, data, static_cast<int64_t>(bytes));
}

bool matches(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

bool overlap(const void* a, const void* b, size_t bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y ? y - x < bytes : x - y < bytes;
}

// The documentation leaves open whether a copy of pageable memory is done when the call returns, and when its
// memory is read. So both happen.
void copy(void* to, const void* from, size_t bytes, bool pageable_source, bool pageable,
          cudaStream_t stream) {
  const bool at_once = pageable && scheduler().draw(2) == 0;
  if (at_once && pageable_source) {
    const auto* begin = static_cast<const std::byte*>(from);
    scheduler().append(stream, "cudaMemcpyAsync", [to, staged = std::vector(begin, begin + bytes)] {
      std::memcpy(to, staged.data(), staged.size());
      return true;
    });
    return;
  }
  const PointHandle end = scheduler().append(stream, "cudaMemcpyAsync", [=] {
    std::memcpy(to, from, bytes);
    return true;
  });
  if (at_once) scheduler().wait({end}, "cudaMemcpyAsync");
}

cudaError_t fill(void* data, int value, size_t bytes, cudaStream_t stream, const char* call) {
  scheduler().run_a_bit();
  if (!scheduler().knows(stream, call)) return answer(cudaErrorInvalidResourceHandle);
  const MemoryFacts facts = look_up(data);
  if (facts.kind == MemoryKind::kPageable || !fits(facts, data, bytes)) return answer(cudaErrorInvalidValue);
  const PointHandle end = scheduler().append(stream, call, [=] {
    std::memset(data, value, bytes);
    return true;
  });
  if (facts.kind == MemoryKind::kPinned && stream == nullptr) scheduler().wait({end}, call);
  return cudaSuccess;
}

}  // namespace
}  // namespace ripstop::emulated

using namespace ripstop::emulated;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  scheduler().run_a_bit();
  if (data == nullptr) return answer(cudaErrorInvalidValue);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  *data = allocate_device(current_device(), static_cast<int64_t>(bytes));
  return *data == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  const MemoryFacts facts = look_up(data);
  if (facts.kind != MemoryKind::kDevice || facts.begin != data) return answer(cudaErrorInvalidValue);
  // Memory in stream order is freed at once; cudaFree of any other memory waits for the device.
  if (!facts.in_stream_order) scheduler().wait(scheduler().ends(facts.device), "cudaFree");
  return free_device(data) ? cudaSuccess : answer(cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t stream) {
  scheduler().run_a_bit();
  if (data == nullptr) return answer(cudaErrorInvalidValue);
  if (!scheduler().knows(stream, "cudaMallocAsync")) return answer(cudaErrorInvalidResourceHandle);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  const int device = stream == nullptr ? current_device() : scheduler().device_of(stream);
  void* memory = allocate_device(device, static_cast<int64_t>(bytes), /*live=*/false);
  if (memory == nullptr) return answer(cudaErrorMemoryAllocation);
  *data = memory;
  scheduler().append(stream, "cudaMallocAsync", [memory] {
    begin_life(memory);
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  scheduler().run_a_bit();
  if (!scheduler().knows(stream, "cudaFreeAsync")) return answer(cudaErrorInvalidResourceHandle);
  if (data == nullptr) return cudaSuccess;
  const MemoryFacts facts = look_up(data);
  if (facts.kind != MemoryKind::kDevice || facts.begin != data) return answer(cudaErrorInvalidValue);
  scheduler().append(stream, "cudaFreeAsync", [data] {
    if (!free_device(data)) refuse("cudaFreeAsync", "the memory was freed before");
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned flags) {
  if (data == nullptr || flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
    return answer(cudaErrorInvalidValue);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  *data = allocate_pinned(current_device(), static_cast<int64_t>(bytes));
  return *data == nullptr ? answer(cudaErrorMemoryAllocation) : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  if (data == nullptr) return cudaSuccess;
  const MemoryFacts facts = look_up(data);
  if (facts.kind != MemoryKind::kPinned || facts.begin != data) return answer(cudaErrorInvalidValue);
  scheduler().wait(scheduler().ends(facts.device), "cudaFreeHost");
  return free_pinned(data) ? cudaSuccess : answer(cudaErrorInvalidValue);
}

cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return fill(data, value, bytes, nullptr, "cudaMemset");
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return fill(data, value, bytes, stream, "cudaMemsetAsync");
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  scheduler().run_a_bit();
  if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return answer(cudaErrorInvalidMemcpyDirection);
  if (!scheduler().knows(stream, "cudaMemcpyAsync")) return answer(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  const MemoryFacts to_facts = look_up(to), from_facts = look_up(from);
  if (to == nullptr || from == nullptr || !fits(to_facts, to, bytes) || !fits(from_facts, from, bytes))
    return answer(cudaErrorInvalidValue);
  // The rest is undefined by the documentation.
  if (!matches(kind, to_facts.kind == MemoryKind::kDevice, from_facts.kind == MemoryKind::kDevice))
    refuse("cudaMemcpyAsync", "the pointers do not match the direction of the copy");
  if (overlap(to, from, bytes)) refuse("cudaMemcpyAsync", "the memory areas overlap");
  const bool pageable_source = from_facts.kind == MemoryKind::kPageable;
  copy(to, from, bytes, pageable_source, pageable_source || to_facts.kind == MemoryKind::kPageable, stream);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  if (attributes == nullptr) return answer(cudaErrorInvalidValue);
  std::memset(attributes, 0, sizeof *attributes);
  const MemoryFacts facts = look_up(data);
  auto* pointer = const_cast<void*>(data);
  attributes->type = facts.kind == MemoryKind::kDevice   ? cudaMemoryTypeDevice
                     : facts.kind == MemoryKind::kPinned ? cudaMemoryTypeHost
                                                         : cudaMemoryTypeUnregistered;
  attributes->device = facts.kind == MemoryKind::kPageable ? -2 : facts.device;  // cudaInvalidDeviceId
  attributes->devicePointer = facts.kind == MemoryKind::kPageable ? nullptr : pointer;
  attributes->hostPointer = facts.kind == MemoryKind::kDevice ? nullptr : pointer;
  return cudaSuccess;
}

}  // extern "C"
