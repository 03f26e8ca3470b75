#include <cuda_runtime_api.h>

#include "model/device/cuda_machine.h"

#include <fmt/format.h>

#include <cstdlib>

namespace ripstop {
namespace {

// Returns "13.0" for 13000.
std::string version_text(int version) {
  return version <= 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string identity_text(const cudaDeviceProp& properties) {
  std::string text;
  for (const char byte : properties.uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// Streams that share one of the device's queues can wait for each other. CUDA reads the number of queues (8
// by default, at most 32) from the environment at its first call.
cudaError_t count_gpus(int& count) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  return cudaGetDeviceCount(&count);
}

CudaGpu look_at_gpu(int index) {
  CudaGpu gpu;
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return gpu;
  gpu.name = properties.name;
  gpu.identity = identity_text(properties);
  gpu.bus = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                        properties.pciDeviceID);
  gpu.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  gpu.major = properties.major;
  gpu.minor = properties.minor;
  gpu.multiprocessors = properties.multiProcessorCount;
  return gpu;
}

}  // namespace

bool cuda_is_built() noexcept {
  return true;
}

int cuda_device_count() noexcept {
  int count = 0;
  if (count_gpus(count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());
  return 0;
}

int64_t cuda_free_bytes(int index) noexcept {
  size_t free = 0, total = 0;
  if (cudaSetDevice(index) != cudaSuccess || cudaMemGetInfo(&free, &total) != cudaSuccess) return 0;
  return static_cast<int64_t>(free);
}

CudaMachine look_at_cuda() {
  CudaMachine machine;
  machine.architectures = RIPSTOP_CUDA_ARCHITECTURES;
  int driver = 0, runtime = 0, count = 0;
  const cudaError_t result = count_gpus(count);
  static_cast<void>(cudaDriverGetVersion(&driver));
  static_cast<void>(cudaRuntimeGetVersion(&runtime));
  // A driver runs programs of every toolkit of the same major version (minor version compatibility).
  machine.libraries.push_back({"driver, for CUDA", version_text(CUDART_VERSION / 1000 * 1000),
                               version_text(CUDART_VERSION), version_text(driver)});
  machine.libraries.push_back({"CUDA run time", "12.0", version_text(CUDART_VERSION), version_text(runtime)});
  for (const CudaLibrary& library : cuda_kernel_libraries()) machine.libraries.push_back(library);
  if (result != cudaSuccess) {
    machine.problem = driver == 0 ? "there is no NVIDIA driver" : cudaGetErrorString(result);
    static_cast<void>(cudaGetLastError());
    return machine;
  }
  for (int index = 0; index < count; ++index) machine.gpus.push_back(look_at_gpu(index));
  if (count == 0) machine.problem = "no GPU is visible (CUDA_VISIBLE_DEVICES?)";
  return machine;
}

}  // namespace ripstop
