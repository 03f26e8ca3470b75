// Recompute: what backward computes again instead of keeping it from forward.
#pragma once
#include <array>
#include <cstddef>
#include <string_view>

namespace ripstop {

/// Which activations a block keeps from its forward for its backward. Backward computes the others again,
/// with the same operations on the same values: so on the CPU, and wherever operations repeat, gradients have
/// the same bits in all three modes.
///
///   kNone       keeps both residual sums, their norms, qkv, attention's output and gate and up:
///               (6 C + 2 K D + 2 F) / t elements a token, and 4 (H + 2) / t bytes of float32
///   kSelective  keeps both residual sums, qkv and attention's output: (4 C + 2 K D) / t elements a token,
///               and 4 H / t bytes of float32; computes 4 C F operations a token again
///   kFull       keeps the first residual sum: C / t elements a token; computes 4 C (C + K D) + 2 C T + 4 C F
///               operations a token again
///
/// That is for each block; elements on one of t ranks of the tensor axis, floating-point operations on all of
/// them together, with causal attention. A block's forward takes 4 C (C + K D) + 2 C T + 6 C F.
///
/// kSelective drops the norms, which are cheap, and the largest result of a product. All products with C
/// columns cost as much for each byte that they give; of gate and up, backward needs the gathered input
/// anyway, so that it is gathered no more often than without recomputation. kFull runs forward again but for
/// its last product, which nobody reads. silu(gate) * up is never kept. Source: arXiv:1604.06174 (drop and
/// compute again); arXiv:2205.05198, section 5 (choose what is large and cheap).
enum class Recompute { kNone, kSelective, kFull };

/// Least recomputation first.
inline constexpr std::array<Recompute, 3> kRecomputes{Recompute::kNone, Recompute::kSelective,
                                                      Recompute::kFull};

/// "none", "selective", "full".
constexpr std::string_view to_string(Recompute recompute) {
  constexpr std::array<std::string_view, 3> kWords{"none", "selective", "full"};
  return kWords[static_cast<size_t>(recompute)];
}

}  // namespace ripstop
