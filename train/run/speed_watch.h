#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset/packed_batch.h"
#include "model/config.h"
#include "parallel/communicator.h"
#include "parallel/stage_split.h"

namespace ripstop {

/// The work of a rank in a step, or its means over the steps of a window.
struct RankWork {
  double rank = 0;             ///< the launcher's number of the rank
  double compute_seconds = 0;  ///< time of the step without waits for collectives and saves
  double wait_seconds = 0;     ///< waits for collectives
  double flops = 0;
  double share = 1;  ///< `flops` as a share of what the rank would compute if it had all layers and the head
};

/// FLOP of a rank's stages, and of all stages for the same tokens. Without a pipeline these are equal.
struct StageFlops {
  double own = 0, all = 0;
  StageFlops& operator+=(const StageFlops& other) {
    own += other.own;
    all += other.all;
    return *this;
  }
};

struct StepTimes {
  double seconds = 0;                 ///< time of the whole step
  double in_collectives_seconds = 0;  ///< waits for other ranks
  double for_save_seconds = 0;        ///< waits for the rank's own save, outside of collectives
};

/// The work of `rank` in a step, without the rank's waits: with waits, all ranks would look as slow as the
/// slowest, and a rank that saves much would look slow. Pure.
RankWork work_of_step(int64_t rank, const StepTimes& times, const StageFlops& flops);

/// The FLOP of a training step for `batch` in `stages` (`own`) and in the whole model (`all`), on one rank.
/// With hidden size C, feed-forward size F, L layers, H query heads and K key-value heads of size D, and V
/// ids, 3 times (forward once, backward twice) the sum of: 2 L C (2 H D + 2 K D + 3 F) for a row, empty or
/// not, 2 L H D n^2 for a document of n rows, and, in the last stage, 2 V C for a target. Pure.
StageFlops batch_flops(const ModelConfig& model, const PackedBatch& batch, std::span<const Stage> stages);

/// The speed of each rank as a multiple of the median rank's speed: the larger of its multiples in FLOP/s and
/// in RankWork::share a second. So longer documents and empty sequences make no rank look slow, and a stage
/// of few layers makes no other rank look slow. 1 for a rank that computed nothing. Pure.
std::vector<double> relative_speeds(std::span<const RankWork> window);

/// Decides which ranks are slow: a rank becomes slow after three windows in a row with a speed below
/// kSlowShare, and normal after three in a row without.
class SlowWindows {
 public:
  static constexpr int kWindows = 3;  ///< windows in a row that change the state of a rank

  /// `speeds`: relative_speeds of a window.
  void add(const std::vector<double>& speeds);

  const std::vector<bool>& slow() const { return slow_; }

 private:
  std::vector<int> in_a_row_;  ///< for each rank, how many windows in a row contradicted slow_
  std::vector<bool> slow_;
};

/// A window of steps. Equal on all ranks.
struct SpeedWindow {
  int64_t steps = 0;
  std::vector<RankWork> ranks;  ///< means over the steps, in mesh order
  std::vector<double> speeds;
  std::vector<bool> slow;      ///< for each rank, whether it is slow after this window
  std::vector<bool> was_slow;  ///< for each rank, whether it was slow before this window
};

/// Finds ranks that compute slower than the others. A window has 5 steps, or more if they take less than half
/// a second, so a slow rank is known after 20 steps or two seconds. Costs a gather of five float64 a window.
class SpeedWatch {
 public:
  static constexpr int64_t kSteps = 5, kMostSteps = 1000;  ///< limits of the steps in a window
  static constexpr double kWindowSeconds = 0.5;            ///< the least time that a window should take

  /// `world` is in mesh order and must outlive this object.
  explicit SpeedWatch(Communicator& world) : world_(world) {}

  /// Adds a step of this rank. Returns the window that it ends, if any; with one rank none. Collective.
  std::optional<SpeedWindow> add(const RankWork& step);

 private:
  Communicator& world_;
  SlowWindows windows_;
  RankWork sum_{.share = 0};
  int64_t steps_ = 0;
  int64_t window_steps_ = kSteps;
};

}  // namespace ripstop
