// Trainer: one run on one rank, from the state of its directory to its last step. trainer.cpp is the loop
// (what happens in each step and between steps); trainer_start.cpp is the start (what is read, checked and
// resumed before the first step), which trainer_announce.cpp tells; trainer_weights.cpp reads the weights
// that it begins with; trainer_speed.cpp times it and looks for slow ranks; trainer_validation.cpp says when
// to validate, which scores are the best, and when they end the run; trainer_saves.cpp saves, while training
// goes on or not.
#pragma once
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/batch_loader.h"
#include "parallel/mpi_world.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/host_states.h"
#include "train/config/run_config.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/read/stored_model.h"
#include "train/machine/peak_flops.h"
#include "train/plan/pretrained_sizes.h"
#include "train/report/live_line.h"
#include "train/run/kernel_plans.h"
#include "train/run/library_memory.h"
#include "train/run/long_step.h"
#include "train/run/resume_check.h"
#include "train/run/run_directory.h"
#include "train/run/run_report.h"
#include "train/run/speed_watch.h"
#include "train/run/start_times.h"
#include "train/run/step_deadline.h"
#include "train/run/time_limit.h"
#include "train/run/validation.h"
#include "train/step/step_profiler.h"

namespace ripstop {

/// The input of a run.
struct TrainerOptions {
  RunConfig config;
  std::vector<std::string> argv;                ///< as typed, for metrics.jsonl
  std::vector<std::string> notes = {};          ///< for people, when the run begins; of rank 0 only
  std::function<void(const std::string&)> say;  ///< prints a line for people; called on rank 0 only
  std::function<bool()> stop_requested;         ///< whether this rank got a request to save and end
  std::optional<Deadline> deadline = {};        ///< of the job, if it is known; rank 0's counts
  StartTimes start_times = {};                  ///< of this start so far
  LiveLine* live =
      nullptr;  ///< shows what is going on, on rank 0 only; must outlive the Trainer; may be null
};

/// What to do if model.pretrained differs on some node.
inline constexpr const char* kSamePretrainedHint = "make the same model.pretrained visible on every node";

/// One run. All ranks of the world make one with equal options. The constructor and `run` are collective. If
/// one rank fails, all ranks throw.
class Trainer {
 public:
  /// Reads the data set, decides what is "auto", plans, and refuses ranks that differ. `world` must outlive
  /// this. Throws Error: kUsage for the config, kInputData for the data set, kResources for mesh or memory.
  Trainer(const TrainerOptions& options, MpiWorld& world);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Refuses what cannot work, takes the run directory, and resumes from its newest whole checkpoint or
  /// begins with random weights or those of model.pretrained. Then trains to the last step, or until as many
  /// validations as train.stop_after_validations says brought no improvement, and returns kOk.
  ///
  /// If a stop was requested on any rank, saves after the current step and returns kRequeue. A step that
  /// would take another minute is given up and made again when the run goes on (LongStep). A validation
  /// under way is given up, and made when the run goes on. So is a validation that is due after the last
  /// step. A stop before the first step returns kRequeue and writes no step.
  ///
  /// The same happens shortly before TrainerOptions::deadline, in time for the save (TimeLimit).
  /// If another process takes the run over, throws kStorage within seconds, and writes nothing any more.
  /// Throws kCommunication, for no progress, if three restarts of a Slurm job committed no new step.
  ///
  /// Throws Error: kUsage for the config, kInputData for the data set, kResources for memory, kStorage for
  /// directory or checkpoint, kNumerics if loss or gradient is not finite in three steps in a row or in the
  /// last step. Before kNumerics, saves the weights as they were after the last update.
  ExitCode run();

  /// After run() has thrown. False if the thread of a save, or that of the lock, does not end within seconds,
  /// because storage does not answer. Then this may not be destroyed, which would wait for it, and the
  /// process must end by _exit.
  bool can_be_destroyed();

 private:
  using Clock = std::chrono::steady_clock;
  /// A save between its begin and its commit.
  struct SaveUnderWay {
    CheckpointState state;
    bool in_background = false;
    double begin_seconds = 0;                    ///< that all ranks took to begin it
    double stood_seconds = 0;                    ///< that training stood still for it so far
    DiskStillness still = {};                    ///< of this rank's disk while training goes on
    Clock::time_point looked_at = Clock::now();  ///< at the disk
    bool is_told = false;                        ///< people know that a disk stands still; equal on all ranks
  };

  // trainer_weights.cpp
  void open_first_weights();
  void set_first_weights();
  void set_first_adapters();
  void find_base_again(const RunConfig& saved_config);
  void read_base();
  bool has_adapters() const { return options_.config.lora.any(); }

  // trainer_start.cpp
  void check_agreement();
  bool start();
  bool count_steps();
  void open_directory();
  void open_directory_of_job();
  void check_checkpoint(const CheckpointState& saved) const;
  bool resume_or_initialize();
  std::vector<std::string> notes_on_resume(const ResumableCheckpoint& saved);
  void prepare_kernels();
  bool agree_to_stop();
  void take_over();
  void find_time_limit();
  void end_start();
  void enter(StartTimes::Part part) { options_.start_times.enter(part); }

  // trainer_announce.cpp
  std::optional<RunSpeed> known_speed() const;
  void say_header();
  void announce();

  // trainer_validation.cpp
  void find_start_scores();
  bool validation_is_due() const { return validation_is_due_at(state_.step); }
  bool validation_is_due_at(int64_t step) const;
  void validate_and_save();
  bool accept_scores(const ValidationScores& scores);
  void report_scores(const ValidationScores& scores, double seconds, bool better);
  void compare_with_start(const ValidationEvent& event);
  /// Whether as many validations in a row as the config allows brought no improvement. Equal on all ranks.
  bool has_stopped_improving() const;
  /// Whether that is why the run ends: it has steps left.
  bool ends_early() const { return has_stopped_improving() && state_.step < steps_; }
  bool is_done() const { return (state_.step >= steps_ || has_stopped_improving()) && !validation_is_due(); }

  // trainer_speed.cpp
  std::optional<StartupSeconds> startup_of_step() const;
  void watch_speed(double waited_before, double flops);
  void report_speed(const SpeedWindow& window);
  // trainer_saves.cpp
  void prepare_saves();
  void take_snapshot_memory(const std::vector<UnitStates>& states);
  void save();
  void save_now(const CheckpointState& state, int64_t keep);
  bool begin_save(const CheckpointState& state, int64_t keep, bool in_background);
  bool finish_save();
  void commit_if_written();
  SaveWork save_work();
  void tell_of_still_disks();
  void take_failed_save(const Error& error, const CheckpointState& state);
  void await_snapshot(size_t unit);
  DiskPatience disk_patience() const;
  /// Whether the state after `step` is saved or being saved.
  bool has_save_of(int64_t step) const {
    return saved_step_ == step || (saving_ && saving_->state.step == step);
  }

  // trainer.cpp
  ExitCode train();
  bool take_step();
  bool compute_step();
  void log_step(const LoaderStep& loaded, const StepResult& result, double rate, double data_wait);
  void drop_wrong_peak(double rows_per_second);
  void check_numerics(const StepResult& result);
  [[noreturn]] void end_without_update();
  static double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }
  bool stop_requested(double next_seconds);
  double seconds_to_next_stop() const;
  void require_progress();
  const char* stop_cause() const { return time_is_up_ ? "before its time limit" : "on a signal"; }
  void sync_log();
  void end(ExitCode code);
  const char* end_reason(ExitCode code) const;
  void write_end(ExitCode code);
  void say_end(ExitCode code);
  Error end_failed(const Error& error);

  MemoryUse planned_memory() const;
  MemoryUse with_arena(MemoryUse use, const MemoryUse& arena) const;
  MemoryUse measured_memory();
  void say(const std::string& line) const {
    if (leads_ && options_.say) options_.say(line);
  }
  void show(const std::string& text) const {
    if (leads_ && options_.live != nullptr) options_.live->show(text);
  }
  void end_live_line() const {
    if (leads_ && options_.live != nullptr) options_.live->clear();
  }
  void warn(const std::string& text);
  template <class Event>
  void log(const Event& event);

  TrainerOptions options_;
  MpiWorld& world_;
  const bool leads_;  ///< rank 0: it speaks and writes for all
  const Clock::time_point begin_ = Clock::now();
  PosixIo io_;

  Tokenizer tokenizer_;
  TokenDataset dataset_;
  std::string device_note_;  ///< before device_, whose initializer writes it
  Device device_;
  std::optional<PretrainedOrigin> pretrained_;  ///< if model.pretrained is given
  RunTarget target_;
  ResolvedRun resolved_;
  RunLength length_;
  int64_t steps_ = 0;  ///< of the whole run

  LibraryMemory library_memory_;  ///< before mesh_, whose communicators take memory
  DeviceMesh mesh_;
  Validation validation_;
  Stream stream_{device_};
  MemoryLedger ledger_;
  RankPlan plan_;
  std::optional<TrainingStep> step_;
  MemoryLedger host_ledger_;          ///< of host memory beside a GPU's
  std::optional<Snapshot> snapshot_;  ///< before writer_, whose thread reads it
  /// Until they are read: what the run begins with, or the frozen model under its adapters.
  std::optional<StoredModel> first_weights_;
  std::optional<PeftAdapter> first_adapters_;  ///< likewise, if the run begins with such
  std::string weights_of_;                     ///< what they were read from, for people
  std::optional<RunDirectory> directory_;
  int64_t newest_step_ = 0;  ///< committed when this start began, as far as can be told; on rank 0
  std::optional<TimeLimit> time_limit_;  ///< on rank 0, if a deadline is known
  bool time_is_up_ = false;              ///< the last answer about a stop was yes because of it; on rank 0
  std::optional<CheckpointWriter> writer_;
  std::optional<BatchLoader> loader_;
  LongStep long_step_{mesh_.world()};
  StepDeadline deadline_{options_.config.run.deadline_seconds};
  SpeedWatch speed_watch_{mesh_.world()};
  StepProfiler profiler_{parse_step_range(options_.config.run.profile_steps), device_};

  CheckpointState state_;
  bool start_is_validated_ = false;              ///< train.validate_at_start is done; equal on all ranks
  std::optional<ValidationEvent> start_scores_;  ///< on rank 0, until they are compared
  std::vector<std::string> resume_notes_;
  int64_t at_step_ = 0;                      ///< the step under way, or the last one
  int64_t first_step_ = 0;                   ///< steps that were done when this start began
  bool has_evaluated_ = false;               ///< this start has computed a validation's loss, or a part of it
  bool has_summarized_ = false;              ///< this start has written summaries at a validation
  bool was_done_ = false;                    ///< this start found nothing to do
  bool has_no_progress_ = false;             ///< why the run ends, on rank 0
  bool end_is_logged_ = false;               ///< metrics.jsonl has its `end`
  int64_t saved_step_ = -1;                  ///< of the last commit
  std::optional<SaveUnderWay> saving_;       ///< equal on all ranks
  std::optional<BestSoFar> committed_best_;  ///< of the last commit
  int64_t failed_saves_ = 0;                 ///< in a row
  bool snapshot_is_whole_ = false;           ///< all ranks keep copies of all their arrays
  bool is_held_ = false;                     ///< a save may still read what the next update changes
  bool all_have_written_ = false;            ///< in the last step's sum no rank was still writing
  bool a_disk_stands_ = false;               ///< in the last step's sum, that of a rank which still writes
  int64_t skips_ = 0;         ///< steps since the last update whose loss or gradient was not finite
  CheckpointState updated_;   ///< if skips_ > 0: the state after the last step before them
  bool stop_agreed_ = false;  ///< all ranks know that a stop was requested on one of them

  std::optional<KernelPlans> kernel_plans_;  ///< on a GPU
  std::optional<PeakFlops> peak_flops_;
  FlopsPerToken flops_per_token_;
  double smoothed_step_seconds_ = 0;  ///< for the time left
  double step_seconds_ = 0;           ///< of the last step
  double save_wait_seconds_ = 0;      ///< of the last step
  double save_alone_seconds_ = 0;     ///< of them, those that this rank was not in a collective
  int64_t resident_before_bytes_ = 0;
  bool libraries_measured_ = false;
  DeviceMesh::AxisSeconds waited_before_;  ///< seconds waited before the step under way
  DeviceMesh::AxisBytes step_traffic_;     ///< of the last step
};

}  // namespace ripstop
