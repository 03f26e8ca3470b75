// Shared by the stand-ins of the CUDA run time: the state of a host thread, as CUDA keeps it.
#pragma once
#include <cuda_runtime_api.h>

#include <vector>

namespace ripstop::emulated {

/// The PCI bus number of each GPU of every process, from $RIPSTOP_EMULATED_GPUS: by default 8 GPUs. Ranks of
/// one machine see the same ones. Two GPUs with one number are parts (MIG) of one card.
const std::vector<int>& gpu_buses();

/// The device of this host thread: 0 until it calls cudaSetDevice.
int current_device();

/// Returns `result`, and keeps it for cudaGetLastError if it is an error.
cudaError_t answer(cudaError_t result);

}  // namespace ripstop::emulated
