#pragma once
#include "parallel/mpi_world.h"
#include "train/machine/rates.h"

namespace ripstop {

/// Measures the rates of this launch: every rank trains a few small models alone, all at once, as they share
/// cores, caches and power in a step, and each kernel's median time counts (the mean over ranks). Then the
/// links between ranks. Takes about half a minute on a CPU. Collective; equal on all ranks.
Rates measure_rates(MpiWorld& world, const Device& device);

}  // namespace ripstop
