// RunSaves: the saves of a run, beside training and between steps, and the handling of failed saves.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/host_states.h"
#include "train/run/decided_run.h"
#include "train/run/run_log.h"
#include "train/run/step_deadline.h"
#include "train/run/time_limit.h"

namespace ripstop {

/// The parts of a run that its saves use. All must outlive the saves.
struct SavedRun {
  const DecidedRun& run;
  RunLog& log;
  std::optional<RunDirectory>& directory;  ///< set on rank 0 alone
  std::optional<TimeLimit>& time_limit;    ///< set on rank 0 alone; learns how long saves take
  const StepDeadline& deadline;            ///< outside_steps() limits the waits for a disk
  /// The states whose `best` must name a checkpoint that exists, also after a failed save.
  std::array<CheckpointState*, 2> states;
};

/// Saves one state after another. All results but times are equal on all ranks. A save that fails on any rank
/// fails on all ranks. Training then goes on with the older checkpoints; but if this process no longer owns
/// the run, or three saves in a row have failed, the last error is thrown.
class RunSaves {
 public:
  /// Allocates memory for copies of `units`, which the stream `compute` updates. `state`: the state at the
  /// start. Collective.
  RunSaves(SavedRun lent, const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units,
           const CheckpointState& state);

  /// Saves `state`, in the background if training goes on meanwhile. Collective, like save_now, finish, await
  /// and after_step.
  void save(const CheckpointState& state, bool in_background);
  /// Saves `state` at the end of the run; after a failure tries again until it is saved or throws. `keep`:
  /// SavePolicy::keep. `stops`: whether the run ends because of a stop request.
  void save_now(const CheckpointState& state, int64_t keep, bool stops);
  /// Commits the save under way, if there is one.
  void finish() {
    if (under_way_) commit();
  }

  /// Call it when a step begins.
  void begin_step() { wait_seconds_ = alone_seconds_ = 0; }
  /// Waits before the update of `unit` until the save under way has read it.
  void await(size_t unit);
  /// The work of this rank for a save in this step. `step_seconds`: the usual time of a step.
  SaveWork work(double step_seconds);
  /// Call it after a step: commits the save if no rank was still writing.
  void after_step(const StepResult& step);

  /// Whether the state after `step` is saved or being saved.
  bool has(int64_t step) const {
    return saved_step_ == step || (under_way_ && under_way_->state.step == step);
  }
  bool is_under_way() const { return under_way_.has_value(); }
  /// The step of the last commit or of the resumed checkpoint; -1 without either.
  int64_t saved_step() const { return saved_step_; }
  /// The time for which the updates of the last step waited for a save; alone_seconds() is the part of this
  /// time that was spent outside of collectives.
  double wait_seconds() const { return wait_seconds_; }
  double alone_seconds() const { return alone_seconds_; }
  /// The plan of the copies, with less memory if the system has refused some.
  const SnapshotPlan& plan() const { return plan_; }
  /// Calls CheckpointWriter::ends_within.
  bool ends_within(std::chrono::milliseconds most) { return writer_->ends_within(most); }

 private:
  using Clock = std::chrono::steady_clock;
  /// A save between its begin and its commit.
  struct UnderWay {
    CheckpointState state;
    bool in_background = false;
    double begin_seconds = 0;                    ///< time in CheckpointWriter::begin
    double stood_seconds = 0;                    ///< time for which training has waited so far
    DiskStillness still = {};                    ///< time without progress of this rank's disk
    Clock::time_point looked_at = Clock::now();  ///< time of the last look at the disk
    bool is_told = false;                        ///< people were warned of a disk that stands still
  };

  DeviceMesh& mesh() const { return *lent_.run.ranks; }
  void take_copies(const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units);
  DiskPatience patience() const;
  bool begin(const CheckpointState& state, int64_t keep, bool in_background, bool stops = false);
  bool commit();
  void take_failure(const Error& error, const CheckpointState& state);
  void tell_of_still_disks();

  const SavedRun lent_;
  SnapshotPlan plan_;
  MemoryLedger host_ledger_;          ///< counts host memory if the run is on a GPU
  std::optional<Snapshot> snapshot_;  ///< must outlive writer_, whose thread reads it
  std::optional<CheckpointWriter> writer_;
  bool is_whole_ = false;  ///< all ranks keep copies of all their arrays
  std::optional<UnderWay> under_way_;
  bool is_held_ = false;  ///< a save may still read arrays that the next update changes
  int64_t saved_step_;
  std::optional<BestSoFar> committed_best_;  ///< best score in the last commit
  int64_t failures_ = 0;                     ///< failed saves in a row
  double wait_seconds_ = 0, alone_seconds_ = 0;
};

}  // namespace ripstop
