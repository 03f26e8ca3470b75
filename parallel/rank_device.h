#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/mpi_world.h"

namespace ripstop {

/// The GPU of rank `rank` of a node where a process sees `visible` GPUs: 0 if the launcher shows each rank
/// only one GPU; otherwise the ranks take the GPUs in turn. Pure.
int gpu_of_local_rank(int64_t rank, int visible);

/// The first two ranks that are on one node and have the same PCI address (which NCCL compares), and so share
/// a GPU; nullopt if no two do. Both lists are indexed by rank. Pure.
std::optional<std::pair<size_t, size_t>> ranks_of_one_gpu(const std::vector<RankHost>& places,
                                                          const std::vector<std::string>& addresses);

/// Throws Error(kResources) unless every rank's NCCL keeps the launch order; `versions` is indexed by rank.
/// Messages of a pipeline and collectives of other axes then begin in the order of the host's calls, which is
/// the order of the pipeline's clock. Source: github.com/NVIDIA/nccl, tag v2.26.2-1, which adds
/// NCCL_LAUNCH_ORDER_IMPLICIT. Pure.
void require_launch_order(const std::vector<std::string>& versions);

/// A note for users of a pipeline if `driver`, the driver's version of CUDA, is below 12.3: NCCL then cannot
/// order only the starts, so each collective waits for the end of the one before. Otherwise "". Source:
/// getImplicitOrder() in NCCL's src/enqueue.cc, tag v2.26.2-1. Pure.
std::string launch_order_note(const std::string& driver);

/// Chooses the GPU of this rank. Throws Error(kResources) if the rank has no GPU that ripstop can use. Not
/// collective.
Device choose_cuda_device(MpiWorld& world);

/// Makes the communicator of all ranks for tensors on `device`, over NCCL. Returns null for the CPU or one
/// rank, where the world's own communicator is enough. If two ranks share a GPU, moves tensors through host
/// memory if RIPSTOP_SHARE_GPU is 1 on rank 0, else throws Error(kResources) on all ranks. `has_pipeline`:
/// over NCCL, throws like require_launch_order(), too. Collective.
std::unique_ptr<Communicator> make_device_communicator(MpiWorld& world, const Device& device,
                                                       bool has_pipeline = false);

}  // namespace ripstop
