#pragma once
#include <string>

#include "parallel/communicator.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Throws Error(kResources) on all ranks, naming ranks and hosts, if version, commit or the kernels'
/// instruction set differ: results would round differently, and collectives could hang.
/// `where`: this rank's host. Collective.
void require_equal_programs(Communicator& world, const std::string& where);

/// Throws Error(kUsage) on all ranks if configs differ, naming keys, values and hosts. Call
/// require_equal_programs() first, because another version has other keys. Collective.
void require_equal_configs(Communicator& world, const RunConfig& config, const std::string& where);

}  // namespace ripstop
