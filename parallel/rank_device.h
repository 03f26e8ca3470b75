// The device of a rank, and the communicator between the devices of all ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The index of the GPU for rank `rank` of a node on which a process sees `visible` GPUs. If the launcher
/// shows each rank only one GPU, the index is 0; otherwise the ranks of the node take the GPUs in turn. Pure.
int gpu_of_local_rank(int64_t rank, int visible);

/// Chooses the GPU of this rank. Throws Error(kResources), which says what is missing, if the rank has no GPU
/// that ripstop can use. Not collective.
Device choose_cuda_device(MpiWorld& world);

/// Makes the communicator of all ranks of the world for tensors on `device`, over NCCL. Returns null for the
/// CPU, and for a world of one rank, where the world's own communicator is enough. If two ranks share a GPU:
/// goes through host memory if RIPSTOP_SHARE_GPU is 1, otherwise throws Error(kResources) on all ranks.
/// Collective.
std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device);

}  // namespace ripstop
