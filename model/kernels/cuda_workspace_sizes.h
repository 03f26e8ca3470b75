// Sizes that both the formulas (cuda_workspaces.cpp) and the kernels use. Needs no CUDA.
#pragma once
#include <cstdint>

namespace ripstop::cuda {

/// cuBLASLt's documentation advises 32 MiB for Hopper. Algorithms that need more are not chosen.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

/// The largest number of thread blocks of add_rmsnorm_backward, each of which sums its own row of dweight:
/// four blocks on each of the 132 multiprocessors of an H100.
inline constexpr int64_t kNormBlocks = 528;

/// The number of groups into which norm_heads_backward divides rows. In each group, one warp per head with a
/// norm (`heads` in all) sums that head's dweight. Aims at 32 warps per multiprocessor of an H100.
constexpr int64_t norm_heads_groups(int64_t rows, int64_t heads) {
  const int64_t groups = heads < kNormBlocks * 8 ? kNormBlocks * 8 / heads : 1;
  return rows < groups ? rows : groups;
}

/// The largest number of thread blocks of add_sum and add_squared_norm. Each writes one float64 partial sum.
inline constexpr int64_t kSumBlocks = 1024;

}  // namespace ripstop::cuda
