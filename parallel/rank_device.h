// The device that a rank computes on, and the communicator that moves tensors between the devices of several
// ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The GPU that rank `rank` of a node takes of the `visible` GPUs. If the launcher shows each rank one GPU,
/// that one; else the ranks of a node take turns. Pure.
int gpu_of_local_rank(int64_t rank, int visible);

/// This rank's GPU. Not collective. Throws Error(kResources) that says what is missing if the rank has no GPU
/// that ripstop can use.
Device choose_cuda_device(MpiWorld& world);

/// The communicator of all ranks of the world for tensors on `device`: NCCL if each rank has a GPU of its
/// own, else through host memory. Null for the CPU and for one rank, because the world's own communicator
/// serves them. Collective.
std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device);

}  // namespace ripstop
