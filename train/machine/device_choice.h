// Which device a rank computes on, and how much of its memory the rank may use.
#pragma once
#include <cstdint>
#include <string>

#include "parallel/mpi_world.h"
#include "train/config/run_config.h"

namespace ripstop {

/// The device that this rank computes on. kAuto: a GPU where every rank has one that works, else the CPU, and
/// where some have one `note` says why it is left alone. Collective. Throws Error(kResources) where kCuda
/// cannot be had.
Device choose_device(DeviceChoice choice, MpiWorld& world, std::string& note);

/// Whether `device` multiplies bfloat16 at least as fast as float32.
bool has_fast_bfloat16(const Device& device);

/// The memory of its device that one rank may come to hold: that of the node where it is least, shared by the
/// ranks there; on a GPU, what is free now. It decides micro-batches and meshes, which must be the same
/// everywhere. Collective.
int64_t memory_of_rank_bytes(MpiWorld& world, const Device& device);
/// The same of what is free now: for work that may take another shape each time.
int64_t free_memory_of_rank_bytes(MpiWorld& world, const Device& device);
/// Of that memory, what is kept for libraries, whose allocations are in no plan and no ledger: a bound.
int64_t library_bytes(DeviceKind device);

}  // namespace ripstop
