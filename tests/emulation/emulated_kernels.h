// The CUDA kernels, compiled by the C++ compiler and run by the emulator.
#pragma once
#include "model/kernels/cuda/ragged_documents.h"
#include "model/ops/kernel_table.h"

namespace emulation {

/// The table of ripstop's own kernels, with plain attention; `linear` and its gradients are null. Tensors are
/// in host memory. `cuda_workspaces()` has the sizes of their workspaces.
[[gnu::visibility("default")]] const ripstop::KernelTable& kernels();

/// The kernels of ragged_documents.h.
struct RaggedKernels {
  decltype(&ripstop::cuda::locate_documents) locate_documents;
  decltype(&ripstop::cuda::log_sum_exp_by_place) log_sum_exp_by_place;
  decltype(&ripstop::cuda::log_sum_exp_by_row) log_sum_exp_by_row;
  decltype(&ripstop::cuda::join_gradients) join_gradients;
  decltype(&ripstop::cuda::single_row_gradients) single_row_gradients;
};
[[gnu::visibility("default")]] const RaggedKernels& ragged();

}  // namespace emulation
