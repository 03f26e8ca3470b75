// RunTarget: the ranks, the device, the data set and the pretrained model that a run is resolved for.
#pragma once
#include <cstdint>
#include <optional>

#include "model/config.h"
#include "model/device/device.h"
#include "parallel/mpi_world.h"

namespace ripstop {

/// The facts outside the config that decide what "auto" becomes. run_target makes it.
struct RunTarget {
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;  ///< 0: not known. Only for hints
  DeviceKind device = DeviceKind::kCpu;
  bool fast_bfloat16 = true;  ///< the device multiplies bfloat16 at least as fast as float32
  /// Memory of one rank, for the plan and for the libraries (library_bytes). nullopt: not known, so no plan
  /// is refused.
  std::optional<int64_t> device_memory_bytes;
  /// One rank's share of the host memory that is free now. nullopt: not known.
  std::optional<int64_t> host_memory_bytes = {};
  int64_t dataset_vocabulary = 0;  ///< 0: no data set at hand, so model.vocab_size must say
  /// The sizes of model.pretrained (read_model_sizes); nullopt without that key.
  std::optional<ModelConfig> pretrained = {};
};

/// The target of `ranks` ranks on devices of one kind. Looks up what this machine's processor can do if
/// `device` is the CPU.
RunTarget run_target(int64_t ranks, DeviceKind device, std::optional<int64_t> device_memory_bytes,
                     int64_t dataset_vocabulary);

/// The target of this very world, with the memory that its ranks have. Collective.
RunTarget run_target(MpiWorld& world, const Device& device, int64_t dataset_vocabulary);

}  // namespace ripstop
