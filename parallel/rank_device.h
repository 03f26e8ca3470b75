// Which device a rank computes on, and what moves tensors between the devices of several ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The GPU that rank `rank` of a node takes where `visible` are visible to it: a launcher that shows each
/// rank one GPU has chosen already; else the ranks of a node take turns. Pure.
int gpu_of_local_rank(int64_t rank, int visible);

/// This rank's GPU. Throws Error(kResources), saying what is missing, where it has none that ripstop can use.
Device choose_cuda_device(MpiWorld& world);

/// All ranks of the world, for tensors on `device`: NCCL where each rank has a GPU of its own, else through
/// host memory. Null for the CPU, which the world's own communicator serves, and for one rank. All ranks
/// call.
std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device);

}  // namespace ripstop
