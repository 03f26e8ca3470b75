// A build without CUDA links this file instead of cuda_*.cpp (except cuda_machine.cpp).
#include "model/device/cuda_machine.h"
#include "model/device/device.h"

namespace ripstop {
namespace {

[[noreturn]] void refuse() {
  throw Error(ExitCode::kResources, "this ripstop was built without CUDA",
              "build the preset cuda, or set run.device = \"cpu\"");
}

}  // namespace

const DeviceTable& cuda_device() {
  refuse();
}

const MemorySource& cuda_host_memory() {
  refuse();
}

bool cuda_is_built() noexcept {
  return false;
}

int cuda_device_count() noexcept {
  return 0;
}

std::vector<std::string> gpu_complaints(const CudaGpu&) {
  return {};
}

int64_t gpu_millijoules(const std::string&) {
  refuse();
}

int64_t cuda_free_bytes(int) noexcept {
  return 0;
}

CudaMachine look_at_cuda() {
  CudaMachine machine;
  machine.problem = "this ripstop was built without CUDA";
  return machine;
}

}  // namespace ripstop
