#pragma once
#include <array>
#include <string_view>

#include "model/core/words.h"

namespace ripstop {

/// The activations that a block keeps from forward for backward. Backward computes the others again, with the
/// same operations on the same values: wherever operations repeat bit for bit, gradients do not depend on the
/// mode. All blocks of a run have the same mode, ShardingOptions::recompute, which Attention::allocate() and
/// Mlp::allocate() follow. train/plan/micro_batch.h chooses it for "auto".
///
///   kNone       keeps both residual sums, their norms, qkv, attention's output and gate and up:
///               (4 C + 2 (H + K) D + 2 F) / t elements a token, and 4 (H + 2) / t bytes of float32
///   kSelective  keeps both residual sums, qkv and attention's output: (2 C + 2 (H + K) D) / t elements a
///               token, and 4 H / t bytes of float32; computes 4 C F operations a token again
///   kFull       keeps the first residual sum: C / t elements a token; computes
///               4 C (H + K) D + 2 H D T + 4 C F operations a token again
///
/// All numbers are for one block without adapters: elements on one of t ranks of the tensor axis, operations
/// on all t ranks together, with causal attention. A block's forward takes 4 C (H + K) D + 2 H D T + 6 C F.
///
/// In a model with norms of heads, qkv is kept before these norms, which backward computes again in every
/// mode.
///
/// kSelective drops the norms, which are cheap, and gate and up, the largest result of a product; backward
/// gathers their input anyway. kFull runs forward again except for its last product. silu(gate) * up is never
/// kept. Source: arXiv:1604.06174 (drop and compute again); arXiv:2205.05198, section 5 (choose large and
/// cheap activations).
enum class Recompute { kNone, kSelective, kFull };

/// All modes, by increasing recomputation.
inline constexpr std::array<Recompute, 3> kRecomputes{Recompute::kNone, Recompute::kSelective,
                                                      Recompute::kFull};

template <>
inline constexpr std::array<std::string_view, 3> kWords<Recompute> = {"none", "selective", "full"};

}  // namespace ripstop
