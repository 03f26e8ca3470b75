// NVML, the driver's management library, is loaded by name, because not all machines have it.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "model/core/error.h"
#include "model/device/cuda_machine.h"

namespace ripstop {
namespace {

// Copies of declarations in the nvml.h of CUDA 13.
struct Process {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr int kExclusiveThread = 1, kProhibited = 2;
constexpr int kUncorrected = 1, kSinceTheDriverStarted = 0;

/// Calls the library's function `name`. Returns false if the function is missing or fails.
template <class... Arguments>
bool call(const char* name, Arguments... arguments) {
  static void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  void* const function = library == nullptr ? nullptr : dlsym(library, name);
  return function != nullptr && reinterpret_cast<int (*)(Arguments...)>(function)(arguments...) == 0;
}

/// NVML's handle of the GPU; null if NVML has none.
void* gpu_at(const std::string& bus) {
  void* device = nullptr;
  const bool found = call("nvmlInit_v2") && call("nvmlDeviceGetHandleByPciBusId_v2", bus.c_str(), &device);
  return found ? device : nullptr;
}

}  // namespace

int64_t gpu_millijoules(const std::string& bus) {
  void* const device = gpu_at(bus);
  unsigned long long energy = 0;
  if (device == nullptr) fail(ExitCode::kResources, "GPU {}: the driver's NVML does not find it", bus);
  if (!call("nvmlDeviceGetTotalEnergyConsumption", device, &energy))
    fail(ExitCode::kResources, "GPU {}: NVML does not tell its energy, as before Volta", bus);
  return static_cast<int64_t>(energy);
}

std::vector<std::string> gpu_complaints(const CudaGpu& gpu) {
  std::vector<std::string> found;
  const auto add = [&](const std::string& text) {
    found.push_back(fmt::format("{} at {} {}", gpu.name, gpu.bus, text));
  };
  void* const device = gpu_at(gpu.bus);
  if (device == nullptr) return found;
  int mode = 0;
  if (call("nvmlDeviceGetComputeMode", device, &mode) && (mode == kProhibited || mode == kExclusiveThread))
    add("is in a compute mode that keeps programs out: `nvidia-smi -c DEFAULT`");
  unsigned long long errors = 0;
  if (call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceTheDriverStarted, &errors) &&
      errors > 0)
    add(fmt::format("has had {} uncorrected memory errors (ECC): reset or replace it", errors));
  std::array<Process, 1024> processes{};  // NVML fails if there are more processes
  auto count = static_cast<unsigned>(processes.size());
  if (!call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, processes.data())) return found;
  constexpr unsigned long long kUnknown = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE, as on MIG and virtual GPUs
  for (unsigned i = 0; i < count; ++i)
    if (processes[i].pid != static_cast<unsigned>(getpid()))
      add(fmt::format("is also used by process {}{}", processes[i].pid,
                      processes[i].used_bytes == kUnknown
                          ? ""
                          : fmt::format(", which holds {} MiB", processes[i].used_bytes >> 20)));
  return found;
}

}  // namespace ripstop
