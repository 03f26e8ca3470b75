// SpeedWatch: which ranks compute slower than the others while a run goes on.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset/packed_batch.h"
#include "model/config.h"
#include "parallel/communicator.h"

namespace ripstop {

/// The work of a rank in a step, or its means over the steps of a window.
struct RankWork {
  double rank = 0;             ///< the launcher's number
  double compute_seconds = 0;  ///< of the step, less the waits for collectives or a save
  double wait_seconds = 0;     ///< for collectives
  double flops = 0;            ///< batch_flops()
};

/// Where the time of a rank's step went.
struct StepTimes {
  double seconds = 0;                 ///< of the whole step
  double in_collectives_seconds = 0;  ///< waits for other ranks
  double for_save_seconds = 0;        ///< waits for its own save, outside of collectives
};

/// The work of rank `rank` in a step, without its waits: all ranks wait for the slowest rank, which would
/// hide it, and the rank that saves most would look slow. Pure.
RankWork work_of_step(int64_t rank, const StepTimes& times, double flops);

/// The floating-point operations that a training step needs for `batch` with whole weights: products of every
/// row, empty ones too, causal attention inside each document, and the head of the rows with a target. With C
/// hidden and F feed-forward size, L layers, K key-value heads of D, V ids: 3 (forward, and twice as much in
/// backward) times 2 L (2 C C + 2 C K D + 3 C F) a row, 2 L C n^2 a document of n rows and 2 V C a target.
/// Pure.
double batch_flops(const ModelConfig& model, const PackedBatch& batch);

/// The speed of each rank, by the median of all: the larger of two numbers, operations a second and steps a
/// second, so that neither a rank with longer documents nor one with empty sequences is taken for slow. 1
/// for a rank that computed nothing. Pure.
std::vector<double> relative_speeds(std::span<const RankWork> window);

/// Tells slow ranks from those that stumble: a rank is slow from its third slow window in a row on, and until
/// three in a row are none. Pure.
class SlowWindows {
 public:
  static constexpr int kWindows = 3;

  /// The windows so far and this one, with the speed of each rank (relative_speeds).
  void add(const std::vector<double>& speeds);

  const std::vector<bool>& slow() const { return slow_; }

 private:
  std::vector<int> in_a_row_;  ///< windows that speak against what slow_ says
  std::vector<bool> slow_;
};

/// The result of a window of steps. Equal on all ranks.
struct SpeedWindow {
  int64_t steps = 0;
  std::vector<RankWork> ranks;  ///< each rank's means over the steps, in mesh order
  std::vector<double> speeds;   ///< of each rank by the median
  std::vector<bool> slow;       ///< after this window
  std::vector<bool> was_slow;   ///< before it
};

/// Collects the windows of a run. A window has 5 steps, or more if they take less than half a second: a slow
/// rank is known after 20 steps or two seconds. One gather of four float64 a window is all that it costs.
class SpeedWatch {
 public:
  static constexpr int64_t kSteps = 5, kMostSteps = 1000;
  static constexpr double kWindowSeconds = 0.5;

  /// `world` in mesh order; it must outlive this.
  explicit SpeedWatch(Communicator& world) : world_(world) {}

  /// Adds a step of this rank. Returns the window that ends with it, if one does. Collective.
  std::optional<SpeedWindow> add(const RankWork& step);

 private:
  Communicator& world_;
  SlowWindows windows_;
  RankWork sum_;
  int64_t steps_ = 0;
  int64_t window_steps_ = kSteps;
};

}  // namespace ripstop
