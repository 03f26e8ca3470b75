// The CUDA kernels, compiled by the C++ compiler and run by the emulator.
#pragma once
#include "model/kernels/cuda/ragged_documents.h"
#include "model/ops/kernel_table.h"

namespace emulation {

/// The table of ripstop's own kernels, with plain attention; `linear` and its gradients are null. Tensors are
/// in host memory. `cuda_workspaces()` has the sizes of their workspaces.
[[gnu::visibility("default")]] const ripstop::KernelTable& kernels();

/// The kernels of ragged_documents.h.
[[gnu::visibility("default")]] void locate_documents(const ripstop::KernelCall&, const ripstop::Documents&,
                                                     const ripstop::Heads&,
                                                     const ripstop::cuda::RaggedOffsets&);
[[gnu::visibility("default")]] void log_sum_exp_by_place(const ripstop::KernelCall&,
                                                         const ripstop::Documents&,
                                                         const ripstop::cuda::DocumentGroup&, int64_t length,
                                                         const ripstop::Tensor& log_sum_exp, float* by_place);
[[gnu::visibility("default")]] void log_sum_exp_by_row(const ripstop::KernelCall&, const ripstop::Documents&,
                                                       const ripstop::cuda::DocumentGroup&, int64_t length,
                                                       const float* by_place,
                                                       const ripstop::Tensor& log_sum_exp);
[[gnu::visibility("default")]] void join_gradients(const ripstop::KernelCall&,
                                                   const ripstop::cuda::SeparateGradients&,
                                                   const ripstop::Heads&, const ripstop::Tensor& dqkv);
[[gnu::visibility("default")]] void single_row_gradients(const ripstop::KernelCall&,
                                                         const ripstop::Documents&, const ripstop::Heads&,
                                                         const ripstop::Tensor& dout,
                                                         const ripstop::Tensor& dqkv);

}  // namespace emulation
