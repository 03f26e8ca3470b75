#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "model/core/function_ref.h"

namespace ripstop {

/// Finds jumps and stalls of the loss, and growth of the gradient norm. Depends on the numbers of the steps
/// alone: equal numbers give equal notes. Tells each event once, and prefers a late note to a false one.
/// Skips numbers that are not finite, and norms of 0. Allocates for notes only.
class LossWatch {
 public:
  using Tell = FunctionRef<void(const std::string& note)>;

  /// Takes a step and calls `tell` with each note on it.
  ///
  /// - Jump: in three steps in a row the loss is above the mean of the last 64 normal losses by six standard
  ///   deviations and by a fifth of that mean. Another jump can be told once the loss came back, or stayed
  ///   above for 64 steps and 64 later losses have made a new mean.
  /// - Stall: of the losses so far, at least 512, in four quarters, the mean falls neither from the second to
  ///   the third nor from there to the fourth. Noise must not hide a slow fall: the standard error of a
  ///   quarter's mean is at most 0.002 of the second mean, or a quarter of the rise. Checked each time that
  ///   there are an eighth to a quarter more losses. Another stall can be told once the fourth mean was a
  ///   hundredth below the second mean of this stall.
  /// - Growth: the geometric mean of the norm over 64 steps has grown at least six times in a row, and has
  ///   doubled meanwhile. Another growth can be told after a mean that has not grown.
  void add(int64_t step, double loss, double gradient_norm, Tell tell);

 private:
  static constexpr size_t kWindow = 64;

  void look_for_jump(int64_t step, double loss, Tell tell);
  void look_for_stall(int64_t step, double loss, Tell tell);
  void look_for_growth(int64_t step, double norm, Tell tell);

  std::array<double, kWindow> window_ = {};  ///< the last normal losses; a ring
  size_t known_ = 0;                         ///< losses put into window_ since the last new level
  size_t above_ = 0;                         ///< losses in a row above the limit
  int64_t jumped_at_ = 0;                    ///< step of the first loss counted in above_

  struct Block {
    double mean = 0;
    int64_t last_step = 0;
  };
  static constexpr size_t kBlocks = 64;
  std::array<Block, kBlocks> blocks_ = {};
  size_t full_blocks_ = 0, block_steps_ = 16;
  double sum_ = 0;  ///< sum of the losses after the last full block
  size_t summed_ = 0;
  bool stalled_ = false;
  double stalled_loss_ = 0;

  double log_sum_ = 0;  ///< sum of the norms' logarithms after the last mean
  size_t norms_ = 0;
  double last_mean_ = 0, first_mean_ = 0;  ///< logarithms of the last mean, and of the mean before the growth
  int64_t grew_from_ = 0, mean_at_ = 0;    ///< last steps of first_mean_, last_mean_; mean_at_ 0: no mean yet
  int growth_ = 0;                         ///< means in a row above the mean before
  bool growth_told_ = false;
};

}  // namespace ripstop
