#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "model/config.h"
#include "model/device/device.h"
#include "parallel/mpi_world.h"
#include "train/config/run_config.h"
#include "train/plan/step_time.h"

namespace ripstop {

/// The ranks, device, data set and pretrained model that decide every "auto".
struct RunTarget {
  int64_t ranks = 1;
  int64_t ranks_per_node = 0;  ///< 0: not known
  DeviceKind device = DeviceKind::kCpu;
  bool fast_bfloat16 = true;  ///< the device multiplies bfloat16 at least as fast as float32
  /// Memory for one rank and its libraries. nullopt: not known, so no plan is refused.
  std::optional<int64_t> device_memory_bytes;
  /// A rank's share of the host memory that is free now. nullopt: not known.
  std::optional<int64_t> host_memory_bytes = {};
  int64_t dataset_vocabulary = 0;  ///< 0: no data set
  /// The sizes of model.pretrained (read_model_sizes); nullopt without that key.
  std::optional<ModelConfig> pretrained = {};
  /// The ids that end texts of model.pretrained (read_model_ends).
  std::vector<int32_t> pretrained_ends = {};

  /// The speeds of ranks; nullopt: not known.
  std::optional<Rates> rates = {};
  StepRows rows = {};  ///< the data set's rows, for the time

  /// The time of a step; nullopt without rates.
  std::optional<StepTime> step_time(const PlanRequest& request) const {
    if (!rates) return std::nullopt;
    return plan_step_time(request, *rates, ranks_per_node, rows);
  }
  /// `config` with the end tokens of model.pretrained, unless it has end tokens of its own.
  RunConfig with_ends(RunConfig config) const {
    if (config.generation.eos_token_id.empty()) config.generation.eos_token_id = pretrained_ends;
    return config;
  }
};

/// The target of `ranks` ranks on devices of one kind. For CPUs, fast_bfloat16 is this machine's.
RunTarget run_target(int64_t ranks, DeviceKind device, std::optional<int64_t> device_memory_bytes,
                     int64_t dataset_vocabulary);

/// The target of this world, with the memory of its ranks. Collective.
RunTarget run_target(MpiWorld& world, const Device& device, int64_t dataset_vocabulary);

}  // namespace ripstop
