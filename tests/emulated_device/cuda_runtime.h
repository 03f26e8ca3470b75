// What the stand-ins of the CUDA run time share: the state of a host thread, as CUDA keeps it.
#pragma once
#include <cuda_runtime_api.h>

namespace ripstop::emulated {

/// GPUs of every process. Ranks of one machine see the same ones, as their identities say.
inline constexpr int kDevices = 8;

/// The device of this host thread: 0 until it calls cudaSetDevice.
int current_device();

/// Returns `result`, and keeps it for cudaGetLastError if it is an error.
cudaError_t answer(cudaError_t result);

}  // namespace ripstop::emulated
