#include "train/machine/device_choice.h"

#include <algorithm>

#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"
#include "parallel/rank_device.h"
#include "train/machine/machine.h"

namespace ripstop {

Device choose_device(DeviceChoice choice, MpiWorld& world, std::string* note) {
  if (choice == DeviceChoice::kCpu) return Device::cpu();
  if (choice == DeviceChoice::kCuda) return choose_cuda_device(world);
  // An error is handled only after the collective below, because the other ranks wait there.
  std::string problem;
  Device device = Device::cpu();
  try {
    device = choose_cuda_device(world);
  } catch (const Error& error) {
    problem = error.what();
  }
  if (all_ranks(world.communicator(), problem.empty())) return device;
  if (note != nullptr && cuda_device_count() > 0)
    *note = "run.device = \"auto\" is the CPU: " +
            (problem.empty() ? "another rank has no GPU that works" : problem);
  return Device::cpu();
}

std::vector<std::string> device_complaints(MpiWorld& world, const Device& device) {
  if (device.kind != DeviceKind::kCuda) return {};
  const CudaGpu gpu = look_at_cuda().gpus.at(static_cast<size_t>(device.index));
  const std::string& host = world.places()[static_cast<size_t>(world.communicator().rank())].host;
  std::string own;
  for (const std::string& text : gpu_complaints(gpu)) own += (own.empty() ? host + ": " : "; ") + text;
  std::vector<std::string> found = world.communicator().all_gather_text(own);
  std::erase(found, "");
  return found;
}

bool has_fast_bfloat16(const Device& device) {
  return device.kind == DeviceKind::kCuda || read_machine().fast_bfloat16;
}

namespace {

// The GPU's free bytes divided by the number of ranks on this GPU. Collective.
int64_t gpu_share_bytes(MpiWorld& world, const Device& device) {
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  const CudaGpu& gpu = gpus.at(static_cast<size_t>(device.index));
  const std::vector<std::string> taken = world.communicator().all_gather_text(gpu.identity);
  return cuda_free_bytes(device.index) / std::count(taken.begin(), taken.end(), gpu.identity);
}

// The machine's available memory, or the unused part of the control group's limit if that is less. All
// processes of the group count against the limit.
int64_t free_memory_bytes(const Machine& machine) {
  if (!machine.memory_limit_bytes) return machine.memory_available_bytes;
  return std::min(machine.memory_available_bytes,
                  *machine.memory_limit_bytes - machine.memory_limit_used_bytes.value_or(0));
}

// The smallest of all ranks' shares. On CPUs, a node's ranks share `of_host_bytes` equally. Collective.
int64_t least_share_bytes(MpiWorld& world, const Device& device, int64_t of_host_bytes) {
  const int64_t own =
      device.kind == DeviceKind::kCuda ? gpu_share_bytes(world, device) : of_host_bytes / world.ranks_here();
  return least_of_all_ranks(world.communicator(), std::max<int64_t>(own, 0));
}

}  // namespace

int64_t memory_of_rank_bytes(MpiWorld& world, const Device& device) {
  return least_share_bytes(world, device, usable_memory_bytes(read_machine()));
}

int64_t free_memory_of_rank_bytes(MpiWorld& world, const Device& device) {
  return least_share_bytes(world, device, free_memory_bytes(read_machine()));
}

// An estimate in MiB, rounded up to 3 GiB:
//     512  CUDA's context
//     512  kernels of cuDNN and cuBLASLt, loaded at first use
//   1,024  NCCL's buffers for the peers of world, replicate, fsdp (twice) and tensor
//     512  rounding up of the fsdp axis's memory to pages of NCCL, which have up to 512 MiB
//     256  a buffer of twice the level-2 cache, to flush that cache when products are timed
//   2,816  in total
int64_t library_bytes(DeviceKind device) {
  return device == DeviceKind::kCuda ? int64_t{3} << 30 : 0;
}

}  // namespace ripstop
