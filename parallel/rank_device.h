// The device of a rank, and the communicator between the devices of all ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The index of the GPU for rank `rank` of a node with `visible` GPUs. If the launcher shows each rank one
/// GPU, 0; else the ranks of a node take turns. Pure.
int gpu_of_local_rank(int64_t rank, int visible);

/// This rank's GPU. Throws Error(kResources) that says what is missing if the rank has no GPU that ripstop
/// can use. Not collective.
Device choose_cuda_device(MpiWorld& world);

/// The communicator of all ranks of the world for tensors on `device`: NCCL. Null for the CPU and for one
/// rank, because the world's own communicator serves them. Collective. If two ranks share a GPU: goes through
/// host memory if RIPSTOP_SHARE_GPU is 1, else throws Error(kResources) on all ranks.
std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device);

}  // namespace ripstop
