// Chooses the device of a rank, and tells how much of its memory the rank may use.
#pragma once
#include <cstdint>
#include <string>

#include "parallel/mpi_world.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Chooses the device that this rank computes on. kAuto: a GPU if every rank has one that works, else the CPU
/// on all ranks. If this rank has a GPU and does not use it, `note` says why. Collective if the choice is
/// kAuto. Throws Error(kResources) if the choice is kCuda and this rank has no GPU that works.
Device choose_device(DeviceChoice choice, MpiWorld& world, std::string& note);

/// Whether `device` multiplies bfloat16 at least as fast as float32.
bool has_fast_bfloat16(const Device& device);

/// The bytes of its device that one rank may come to use: an equal share of the node's memory, or of the
/// GPU's memory that is free now. The least of all ranks, because it decides micro-batches and meshes, which
/// must be the same on all ranks. Collective.
int64_t memory_of_rank_bytes(MpiWorld& world, const Device& device);
/// The same, but of the node's memory that is free now. For evaluate and summarize, which need not choose the
/// same mesh every time. Collective.
int64_t free_memory_of_rank_bytes(MpiWorld& world, const Device& device);
/// An upper bound of the bytes that libraries allocate on the device. No plan and no ledger counts them.
int64_t library_bytes(DeviceKind device);

}  // namespace ripstop
