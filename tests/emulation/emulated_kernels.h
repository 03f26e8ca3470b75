// The CUDA kernels, compiled by the C++ compiler and run by the emulator.
#pragma once
#include "model/ops/kernel_table.h"

namespace emulation {

/// All rows that are kernels of our own: `linear` and its gradients are null. Attention is by the plain
/// kernels. Tensors are in host memory. `cuda_workspaces()` says what scratch they need.
[[gnu::visibility("default")]] const ripstop::KernelTable& kernels();

}  // namespace emulation
