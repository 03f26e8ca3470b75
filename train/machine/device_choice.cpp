#include "train/machine/device_choice.h"

#include <algorithm>
#include <vector>

#include "model/device/cuda_machine.h"
#include "parallel/agreement.h"
#include "parallel/rank_device.h"
#include "train/machine/machine.h"

namespace ripstop {

Device choose_device(DeviceChoice choice, MpiWorld& world, std::string& note) {
  if (choice == DeviceChoice::kCpu) return Device::cpu();
  if (choice == DeviceChoice::kCuda) return choose_cuda_device(world);
  // A rank without a GPU must not leave the others waiting for it.
  std::string problem;
  Device device = Device::cpu();
  try {
    device = choose_cuda_device(world);
  } catch (const Error& error) {
    problem = error.what();
  }
  const bool some = cuda_device_count() > 0;
  if (least_of_all_ranks(world.communicator(), problem.empty() ? 1 : 0) == 1) return device;
  if (some) note = problem.empty() ? "another rank has no GPU that works" : problem;
  return Device::cpu();
}

bool has_fast_bfloat16(const Device& device) {
  return device.kind == DeviceKind::kCuda || read_machine().fast_bfloat16;
}

namespace {

/// On a GPU, what is free now, shared by the ranks that it serves.
int64_t gpu_share_bytes(MpiWorld& world, const Device& device) {
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  const CudaGpu& gpu = gpus.at(static_cast<size_t>(device.index));
  const std::vector<std::string> taken = world.communicator().all_gather_text(gpu.identity);
  return cuda_free_bytes(device.index) / std::count(taken.begin(), taken.end(), gpu.identity);
}

int64_t free_memory_bytes(const Machine& machine) {
  if (!machine.memory_limit_bytes) return machine.memory_available_bytes;
  return std::min(machine.memory_available_bytes,
                  *machine.memory_limit_bytes - machine.memory_limit_used_bytes.value_or(0));
}

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

// In MiB, none of it measured yet: CUDA's context 512; kernels of cuDNN and cuBLASLt, which are loaded when
// they are first used, 512; NCCL's buffers for every peer of world, replicate, fsdp (twice) and tensor 1,024;
// what it rounds the block of the fsdp axis up by, where that goes through NVLink switches, 512; while
// products are timed, twice the level-2 cache to empty it, 256. Together 2,816.
int64_t library_bytes(DeviceKind device) {
  return device == DeviceKind::kCuda ? int64_t{3} << 30 : 0;
}

}  // namespace ripstop
