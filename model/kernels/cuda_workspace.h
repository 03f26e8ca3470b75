// How much scratch the CUDA kernels are given: what their formulas (cuda_workspace.cpp) and the kernels must
// agree on. Needs no CUDA.
#pragma once
#include <cstdint>

namespace ripstop::cuda {

/// What cuBLASLt is given, as its documentation advises for Hopper; algorithms that want more are not chosen.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

/// Blocks of add_rmsnorm_backward: each adds up a row of dweight by itself. Four on each of 132 processors.
inline constexpr int64_t kNormBlocks = 528;

/// Blocks of add_sum and add_squared_norm, each with a partial sum in float64.
inline constexpr int64_t kSumBlocks = 1024;

}  // namespace ripstop::cuda
