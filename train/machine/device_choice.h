#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"
#include "train/config/run_config.h"

namespace ripstop {

/// Chooses this rank's device. kAuto is a GPU if every rank has a working one, else the CPU on all ranks;
/// then `note`, if not null, tells a rank that has a GPU why the GPU is not used. Collective for kAuto.
/// Throws Error(kResources) for kCuda if this rank has no working GPU.
Device choose_device(DeviceChoice choice, MpiWorld& world, std::string* note = nullptr);

/// Reasons not to use the ranks' GPUs (gpu_complaints), one text for each rank with reasons. Collective.
std::vector<std::string> device_complaints(MpiWorld& world, const Device& device);

/// Whether `device` multiplies bfloat16 at least as fast as float32.
bool has_fast_bfloat16(const Device& device);

/// The bytes of memory that a rank may use: an equal share of the node's memory, or of the GPU's free memory.
/// Returns the smallest of all ranks' shares, because all ranks must choose the same micro-batch and mesh.
/// Collective.
int64_t memory_of_rank_bytes(MpiWorld& world, const Device& device);
/// memory_of_rank_bytes(), but on a CPU a share of the node's free memory. Collective.
int64_t free_memory_of_rank_bytes(MpiWorld& world, const Device& device);
/// An estimate, rounded up, of the bytes that libraries allocate on a device. No ledger counts them.
int64_t library_bytes(DeviceKind device);

}  // namespace ripstop
