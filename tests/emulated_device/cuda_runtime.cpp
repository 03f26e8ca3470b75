// Stand-ins of the CUDA run time: devices, errors, profilers. See CALLS.md for what the real ones do.
#include "tests/emulated_device/cuda_runtime.h"

#include <cuda_profiler_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <utility>

#include "tests/emulated_device/device_memory.h"
#include "tests/emulated_device/scheduler.h"

namespace ripstop::emulated {
namespace {

thread_local int device = 0;
thread_local cudaError_t last_error = cudaSuccess;

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
};

int device_count() {
  return static_cast<int>(gpu_buses().size());
}

const ErrorText* find(cudaError_t error) {
  for (const ErrorText& each : kErrors)
    if (each.error == error) return &each;
  return nullptr;
}

}  // namespace

const std::vector<int>& gpu_buses() {
  static const std::vector<int> buses = [] {
    const char* text = std::getenv("RIPSTOP_EMULATED_GPUS");
    std::istringstream in(text == nullptr ? "0 1 2 3 4 5 6 7" : text);
    return std::vector<int>(std::istream_iterator<int>(in), {});
  }();
  return buses;
}

int hardware_queues() {
  static const int64_t queues =
      std::clamp<int64_t>(from_environment("CUDA_DEVICE_MAX_CONNECTIONS", 8), 1, 32);
  return static_cast<int>(queues);
}

int current_device() {
  return device;
}

cudaError_t answer(cudaError_t result) {
  if (result != cudaSuccess) last_error = result;
  return result;
}

}  // namespace ripstop::emulated

using namespace ripstop::emulated;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaSetDevice(int index) {
  static_cast<void>(hardware_queues());
  if (index < 0 || index >= device_count()) return answer(cudaErrorInvalidDevice);
  device = index;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* index) {
  if (index == nullptr) return answer(cudaErrorInvalidValue);
  *index = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return answer(cudaErrorInvalidValue);
  *count = device_count();
  static_cast<void>(hardware_queues());
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (properties == nullptr) return answer(cudaErrorInvalidValue);
  if (index < 0 || index >= device_count()) return answer(cudaErrorInvalidDevice);
  std::memset(properties, 0, sizeof *properties);
  std::strcpy(properties->name, "emulated GPU");
  std::memset(properties->uuid.bytes, index + 1, sizeof properties->uuid.bytes);
  properties->pciBusID = gpu_buses()[static_cast<size_t>(index)];
  properties->totalGlobalMem = static_cast<size_t>(device_bytes());
  properties->major = 9;
  properties->multiProcessorCount = 132;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int index) {
  if (value == nullptr) return answer(cudaErrorInvalidValue);
  if (index < 0 || index >= device_count()) return answer(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = 132;
      return cudaSuccess;
    case cudaDevAttrL2CacheSize:  // small: whoever times products fills it before each
      *value = 1 << 16;
      return cudaSuccess;
    default:
      refuse("cudaDeviceGetAttribute", "attribute " + std::to_string(attribute) + " is not emulated");
  }
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (free == nullptr || total == nullptr) return answer(cudaErrorInvalidValue);
  *free = static_cast<size_t>(free_device_bytes(device));
  *total = static_cast<size_t>(device_bytes());
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return answer(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return cudaDriverGetVersion(version);
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* found = find(error);
  return found == nullptr ? "unrecognized error code" : found->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* found = find(error);
  return found == nullptr ? "unrecognized error code" : found->text;
}

cudaError_t cudaProfilerStart() {
  return cudaSuccess;
}
cudaError_t cudaProfilerStop() {
  return cudaSuccess;
}

}  // extern "C"
