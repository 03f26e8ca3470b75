// What must be the same on all ranks before they compute together.
#pragma once
#include <string>

#include "parallel/communicator.h"

namespace ripstop {

/// Throws Error(kResources) on all ranks, naming who differs, unless all run the same build of ripstop with
/// kernels for the same instruction set: others round differently, and not every collective would end.
/// `where` is this rank's host. All ranks of `world` call.
void require_equal_programs(Communicator& world, const std::string& where);

}  // namespace ripstop
