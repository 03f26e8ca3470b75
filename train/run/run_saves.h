#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/checkpoint/checkpoint_writer.h"
#include "train/run/decided_run.h"
#include "train/run/run_log.h"
#include "train/run/step_deadline.h"
#include "train/run/time_limit.h"

namespace ripstop {

/// The objects of a run that its saves use. All must outlive the saves.
struct SavedRun {
  const DecidedRun& run;
  RunLog& log;
  std::optional<RunDirectory>& directory;  ///< set on rank 0 only
  std::optional<TimeLimit>& time_limit;    ///< set on rank 0 only
  const StepDeadline& deadline;            ///< outside_steps() limits the waits for a disk
  /// States whose `best` must name an existing checkpoint, also after a failed save.
  std::array<CheckpointState*, 2> states;
  RangeRecorder* recorder = nullptr;  ///< records saves if it is on; may be null
  bool state_is_unsaved = false;      ///< the state at the start is no checkpoint of this run
};

/// The saves of a run, one at a time. If a save fails on any rank with kStorage, the run warns and trains on
/// with the older checkpoints. Any other error, a third failure in a row, or a lost lock throws.
class RunSaves {
 public:
  /// Allocates memory for copies of `units`, which the stream `compute` updates. `state`: the state at
  /// this start. Collective.
  RunSaves(SavedRun lent, const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units,
           const CheckpointState& state);

  /// Saves `state`. Collective, like save_now, finish, await and after_step.
  void save(const CheckpointState& state, bool in_background);
  /// Returns once `state` is saved; tries again until the third failure in a row throws. `keep`:
  /// SavePolicy::keep. `stops`: a stop request ends the run.
  void save_now(const CheckpointState& state, int64_t keep, bool stops);
  /// Commits the save under way, if any.
  void finish() {
    if (under_way_) commit();
  }

  void begin_step() { wait_seconds_ = alone_seconds_ = 0; }
  /// Waits until the save under way has read the unit with this number. Call it before the unit is updated.
  void await(size_t unit);
  /// Call it after the updates of a step, so that ranks with fewer units vote as often as the others.
  void end_updates() {
    for (size_t unit = units_; unit < most_units_; ++unit) await(unit);
  }
  /// The state of this rank's save in this step. `step_seconds`: the usual time of a step.
  SaveWork work(double step_seconds);
  /// Call it after a step. Commits the save if all ranks have written it.
  void after_step(const StepResult& step);

  /// Whether the state after `step` is saved or being saved.
  bool has(int64_t step) const {
    return saved_step_ == step || (under_way_ && under_way_->state.step == step);
  }
  bool is_under_way() const { return under_way_.has_value(); }
  /// The step of the last commit or of the resumed checkpoint; -1 if there is neither.
  int64_t saved_step() const { return saved_step_; }
  /// The time that the last step's updates waited for a save. alone_seconds() is the part outside
  /// collectives.
  double wait_seconds() const { return wait_seconds_; }
  double alone_seconds() const { return alone_seconds_; }
  /// The plan of the copies, with less memory if the system refused some.
  const SnapshotPlan& plan() const { return plan_; }
  bool ends_within(std::chrono::milliseconds most) { return writer_->ends_within(most); }

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    CheckpointState state;
    bool in_background = false;
    double begin_seconds = 0;  ///< time in begin(), without the previous save
    double stood_seconds = 0;  ///< time that training has waited for this save so far
    DiskStillness still = {};  ///< time without progress of this rank's disk
    Clock::time_point looked_at = Clock::now();
    bool is_told = false;  ///< people were warned of a disk without progress
  };

  DeviceMesh& mesh() const { return *lent_.run.ranks; }
  void take_copies(const Stream& compute, MemoryLedger& ledger, const std::vector<UnitStates>& units);
  DiskPatience patience() const;
  bool begin(const CheckpointState& state, int64_t keep, bool in_background, bool stops = false);
  bool commit();
  void take_failure(const Error& error, const CheckpointState& state);
  void tell_of_still_disks();

  const SavedRun lent_;
  const size_t units_, most_units_;  ///< number of units of this rank, and of the rank with the most units
  SnapshotPlan plan_;
  MemoryLedger host_ledger_;          ///< host memory if the run is on a GPU
  std::optional<Snapshot> snapshot_;  ///< must outlive writer_, whose thread reads it
  std::optional<CheckpointWriter> writer_;
  bool is_whole_ = false;  ///< all ranks keep copies of all their arrays
  std::optional<UnderWay> under_way_;
  bool is_held_ = false;  ///< a save may still read arrays that the next update changes
  int64_t saved_step_;
  std::optional<BestSoFar> committed_best_;  ///< best score at the last commit
  int64_t failures_ = 0;                     ///< failures in a row, at most one a step; in save_now() all
  int64_t failed_step_ = -1;                 ///< last step counted in failures_; -1: the next failure counts
  double wait_seconds_ = 0, alone_seconds_ = 0;
};

}  // namespace ripstop
