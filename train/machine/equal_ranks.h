// Checks that all ranks run the same program before they compute together.
#pragma once
#include <string>

#include "parallel/communicator.h"

namespace ripstop {

/// Throws Error(kResources) on all ranks, with the host that differs, if ranks run different builds of
/// ripstop or kernels for different instruction sets. Such ranks would round differently, and some
/// collectives would never end. `where` is this rank's host. Collective over `world`.
void require_equal_programs(Communicator& world, const std::string& where);

}  // namespace ripstop
