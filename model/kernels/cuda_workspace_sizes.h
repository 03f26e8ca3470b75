// Sizes of CUDA workspaces that both the formulas (cuda_workspaces.cpp) and the kernels use. Needs no CUDA.
#pragma once
#include <cstdint>

namespace ripstop::cuda {

/// The workspace of cuBLASLt, as its documentation advises for Hopper: 32 MiB. Algorithms that need more are
/// not chosen.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

/// The number of thread blocks of add_rmsnorm_backward, each of which sums its own row of dweight: four
/// blocks on each of the 132 multiprocessors of an H100.
inline constexpr int64_t kNormBlocks = 528;

/// The most thread blocks of add_sum and add_squared_norm. Each block writes one float64 partial sum.
inline constexpr int64_t kSumBlocks = 1024;

}  // namespace ripstop::cuda
