#include "train/plan/run_target.h"

#include "train/machine/device_choice.h"

namespace ripstop {

RunTarget run_target(int64_t ranks, DeviceKind device, std::optional<int64_t> device_memory_bytes,
                     int64_t dataset_vocabulary) {
  return {.ranks = ranks,
          .ranks_per_node = 0,
          .device = device,
          .fast_bfloat16 = has_fast_bfloat16({.kind = device, .planned = device}),
          .device_memory_bytes = device_memory_bytes,
          .host_memory_bytes = {},
          .dataset_vocabulary = dataset_vocabulary};
}

RunTarget run_target(MpiWorld& world, const Device& device, int64_t dataset_vocabulary) {
  RunTarget target = run_target(world.communicator().size(), device.kind, memory_of_rank_bytes(world, device),
                                dataset_vocabulary);
  target.ranks_per_node = world.ranks_here();
  target.host_memory_bytes = free_memory_of_rank_bytes(world, Device::cpu());
  return target;
}

}  // namespace ripstop
