#pragma once
#include "parallel/mpi_world.h"
#include "train/machine/rates.h"

namespace ripstop {

/// Measures the rates of this launch. Each rank trains a few small models alone, but all ranks do so at once,
/// to share cores, caches and power as in a step; a kernel's time is the mean of the ranks' medians.
/// Also measures power, memory and links. Takes half a minute on a CPU. Collective.
Rates measure_rates(MpiWorld& world, const Device& device);

}  // namespace ripstop
