// Checks that all ranks run the same program with the same config before they compute together.
#pragma once
#include <string>

#include "parallel/communicator.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Throws Error(kResources) on all ranks, with the host that differs, if ranks run different builds of
/// ripstop or kernels for different instruction sets. Such ranks would round differently, and some
/// collectives would never end. `where` is this rank's host. Collective over `world`.
void require_equal_programs(Communicator& world, const std::string& where);

/// Throws Error(kUsage) on all ranks if their configs differ, with the keys that do, and the value and the
/// host of each. Call require_equal_programs() before: other versions have other keys. Collective over
/// `world`.
void require_equal_configs(Communicator& world, const RunConfig& config, const std::string& where);

}  // namespace ripstop
