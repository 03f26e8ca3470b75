#pragma once
#include <cstdint>
#include <optional>

#include "model/config.h"
#include "model/device/device.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// The ranks, device, data set and pretrained model that decide every "auto". Made by run_target.
struct RunTarget {
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;  ///< 0: not known; for hints and searches only
  DeviceKind device = DeviceKind::kCpu;
  bool fast_bfloat16 = true;  ///< the device multiplies bfloat16 at least as fast as float32
  /// Memory of one rank, with libraries. nullopt: not known, so no plan is refused.
  std::optional<int64_t> device_memory_bytes;
  /// A rank's share of the host memory that is free now. nullopt: not known.
  std::optional<int64_t> host_memory_bytes = {};
  int64_t dataset_vocabulary = 0;  ///< 0: no data set, so model.vocab_size is required
  /// The sizes of model.pretrained (read_model_sizes); nullopt without that key.
  std::optional<ModelConfig> pretrained = {};
};

/// The target of `ranks` ranks on devices of one kind; on CPUs, of this machine's processor.
RunTarget run_target(int64_t ranks, DeviceKind device, std::optional<int64_t> device_memory_bytes,
                     int64_t dataset_vocabulary);

/// The target of this world, with the memory of its ranks. Collective.
RunTarget run_target(MpiWorld& world, const Device& device, int64_t dataset_vocabulary);

}  // namespace ripstop
