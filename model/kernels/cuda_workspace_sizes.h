// Sizes of CUDA workspaces that both the formulas (cuda_workspaces.cpp) and the kernels use. Needs no CUDA.
#pragma once
#include <cstdint>

namespace ripstop::cuda {

/// The workspace of cuBLASLt, which advises 32 MiB for Hopper. Algorithms that want more are not chosen.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

/// Blocks of add_rmsnorm_backward. Each sums its own row of dweight. 528 is four blocks on each of the 132
/// multiprocessors of an H100.
inline constexpr int64_t kNormBlocks = 528;

/// Blocks of add_sum and add_squared_norm. Each writes one float64 partial sum.
inline constexpr int64_t kSumBlocks = 1024;

}  // namespace ripstop::cuda
