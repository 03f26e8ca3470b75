#include "parallel/rank_device.h"

#include <set>

#include "model/device/cuda_machine.h"

namespace ripstop {
int gpu_of_local_rank(int64_t rank, int visible) {
  return visible <= 1 ? 0 : static_cast<int>(rank % visible);
}

Device choose_cuda_device(MpiWorld& world) {
  const CudaMachine machine = look_at_cuda();
  constexpr const char* kHint =
      "`ripstop doctor` shows what was found; run.device = \"cpu\" computes without a GPU";
  for (const CudaLibrary& library : machine.libraries)
    if (const std::string complaint = library.complaint(); !complaint.empty() && !machine.gpus.empty())
      throw Error(ExitCode::kResources, complaint, kHint);
  if (machine.gpus.empty()) throw Error(ExitCode::kResources, "no GPU: " + machine.problem, kHint);
  const int index = gpu_of_local_rank(world.local_rank(), static_cast<int>(machine.gpus.size()));
  const CudaGpu& gpu = machine.gpus[static_cast<size_t>(index)];
  if (!gpu.is_supported())
    throw Error(ExitCode::kResources,
                fmt::format("{} has compute capability {}.{}, ripstop needs {}.0", gpu.name, gpu.major,
                            gpu.minor, CudaGpu::kOldestMajor),
                kHint);
  return Device::cuda(index);
}

std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device) {
  Communicator& all = world.communicator();
  if (device.kind != DeviceKind::kCuda || all.size() == 1) return nullptr;
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  // Identities are compared, because index 0 may be another GPU for each rank.
  const std::vector<std::string> taken =
      all.all_gather_text(gpus.at(static_cast<size_t>(device.index)).identity);
  // NCCL refuses two ranks on one GPU.
  const bool shared = std::set<std::string>(taken.begin(), taken.end()).size() < taken.size();
  std::unique_ptr<Communicator> host = all.split(0, all.rank(), all.name());
  return shared ? make_staged_communicator(std::move(host), device)
                : make_nccl_communicator(std::move(host), device);
}

}  // namespace ripstop
