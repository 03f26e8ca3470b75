// The start after decide_run is in trainer_start.cpp, the initial weights in trainer_weights.cpp, loop and
// end in trainer.cpp, validations and best scores in trainer_validation.cpp.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/batch_loader.h"
#include "parallel/mpi_world.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/read/stored_model.h"
#include "train/machine/peak_flops.h"
#include "train/plan/run_length.h"
#include "train/run/account_watch.h"
#include "train/run/decided_run.h"
#include "train/run/kernel_plans.h"
#include "train/run/long_step.h"
#include "train/run/loss_watch.h"
#include "train/run/resume_check.h"
#include "train/run/run_report.h"
#include "train/run/run_saves.h"
#include "train/run/speed_watch.h"
#include "train/run/step_clock.h"
#include "train/run/step_trace.h"

namespace ripstop {

struct TrainerOptions {
  RunConfig config;
  std::vector<std::string> argv;                ///< the command line, for metrics.jsonl
  std::vector<std::string> notes = {};          ///< notes for people, at the start; on rank 0 only
  std::function<void(const std::string&)> say;  ///< prints a line for people; called on rank 0 only
  std::function<bool()> stop_requested;         ///< whether this rank got a request to save and end
  std::optional<Deadline> deadline = {};        ///< end of the job, if known; used on rank 0 only
  bool allow_changes = false;                   ///< --allow-changes
  LongStepTimes long_step = {};
  StartTimes start_times = {};
  LiveLine* live = nullptr;  ///< shows the work under way, on rank 0 only; must outlive the Trainer
  std::filesystem::path powercap = EnergyMeter::kPowercap;
};

/// A run on one rank. `make` and `run` are collective.
class Trainer {
 public:
  /// Calls decide_run, and throws like it. Changes no file. `world` must outlive the result.
  static std::unique_ptr<Trainer> make(TrainerOptions options, MpiWorld& world);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Takes the run directory, and resumes from its newest whole checkpoint, or begins with run.continue_from,
  /// model.pretrained or random weights. Trains to the last step, or until train.stop_after_validations
  /// validations brought no improvement, and returns kOk.
  ///
  /// After a stop request on any rank, or shortly before TrainerOptions::deadline, saves after the current
  /// step and, unless the run is done, returns kRequeue. A validation, or a step that would take another
  /// minute, is given up and made again later. A stop during the start saves nothing.
  ///
  /// If another process takes the run over, throws kStorage, and writes nothing any more.
  /// Throws kCommunication if three restarts of a Slurm job committed no new step.
  ///
  /// Throws Error: kUsage for the config, kInputData for data or model, kResources for memory, kStorage for
  /// directory or checkpoint, kNumerics if loss or gradient is not finite in three steps in a row or in the
  /// last step. Before kNumerics, saves the weights after the last update, if any.
  ExitCode run();

  /// Call it after run() has thrown. Returns false if the thread of a save, lock or log does not end within
  /// seconds, because storage does not answer. Then end the process by _exit: the destructor would wait.
  bool can_be_destroyed();

 private:
  using Clock = std::chrono::steady_clock;
  /// The initial weights of a new run, opened but not read.
  struct FirstWeights {
    std::optional<StoredModel> model;     ///< model.pretrained, if given
    std::optional<PeftAdapter> adapters;  ///< lora.adapter, if given
  };
  /// Contents of the header and of the `start` event.
  struct StartFindings {
    RunLength length;
    std::vector<std::string> notes, warnings, resume_notes;
    std::string weights_of;                 ///< the pretrained model that was read, for people; or empty
    std::vector<ConfigDifference> changes;  ///< StartEvent::changes
    std::optional<KernelPlans> kernel_plans = {};  ///< set on a GPU, unless the run is done
    MetricsLog log;                                ///< log up to this start (read_log_ends); on rank 0
  };
  struct StepWork {
    LoaderStep loaded;
    double learning_rate = 0, data_wait_seconds = 0;
    StageFlops flops = {};
  };

  Trainer(TrainerOptions options, MpiWorld& world, DecidedRun run);

  // Defined in trainer_weights.cpp.
  FirstWeights open_first_weights(std::vector<std::string>& notes);
  std::string set_first_weights(const FirstWeights& first);
  std::optional<std::string> read_base(FirstWeights first, const std::optional<ResumableCheckpoint>& resumed);
  bool has_adapters() const { return run_.config.lora.any(); }

  // Defined in trainer_start.cpp.
  bool start();
  std::optional<RunLength> count_steps();
  void open_directory();
  std::optional<ResumableCheckpoint> resume(StartFindings& found);
  ResumableCheckpoint check_resumable(const Checkpoint& checkpoint, StartFindings& found);
  void load(const Checkpoint& checkpoint);
  std::optional<ResumableCheckpoint> continue_run(StartFindings& found);
  bool resume_or_initialize(FirstWeights first, StartFindings& found);
  std::optional<KernelPlans> prepare_kernels();
  bool agree_to_stop();
  void end_start();
  void say_header(const StartFindings& found, const StartEvent& event);
  StartEvent start_event(const StartFindings& found) const;
  void announce(const StartFindings& found);
  void enter(StartTimes::Part part) { options_.start_times.enter(part); }

  // Defined in trainer_validation.cpp.
  bool validates_like(const CheckpointState& saved) const;
  void find_start_scores(const MetricsLog& log);
  bool validation_is_due() const { return validation_is_due_at(state_.step); }
  bool validation_is_due_at(int64_t step) const;
  bool validate_and_save();
  bool accept_scores(const ValidationScores& scores);
  void report_scores(const ValidationScores& scores, double seconds, bool better);
  void compare_with_start(const ValidationEvent& event);
  /// Whether the last train.stop_after_validations validations brought no improvement. Equal on all ranks.
  bool has_stopped_improving() const;
  bool ends_early() const { return has_stopped_improving() && state_.step < steps_; }
  bool is_done() const { return (state_.step >= steps_ || has_stopped_improving()) && !validation_is_due(); }

  // Defined in trainer.cpp.
  ExitCode train();
  std::optional<StepResult> take_step();
  std::optional<StepResult> compute_step(StepWork& work);
  void log_step(const StepWork& work, const StepResult& result);
  std::optional<StartupSeconds> startup_of_step() const;
  void watch_speed(const StageFlops& flops);
  void drop_wrong_peak(double rows_per_second);
  void check_numerics(const StepResult& result);
  [[noreturn]] void end_without_update(bool stops);
  void save();
  bool stop_requested(double next_seconds);
  void require_progress(int64_t step);
  const char* stop_cause() const { return time_is_up_ ? "before its time limit" : "on a signal"; }
  const char* end_reason(ExitCode code) const;
  void write_end(ExitCode code);
  void say_end(ExitCode code);
  Error end_failed(const Error& error);
  StepCost planned_cost() const;
  MemoryUse with_arena(MemoryUse use, const MemoryUse& arena) const;
  MemoryUse measured_memory();

  TrainerOptions options_;  ///< options_.config is unused: see run_.config
  const DecidedRun run_;
  MpiWorld& world_;
  const bool leads_;  ///< this is rank 0, which speaks and writes for all
  const Clock::time_point begin_ = Clock::now();

  DeviceMesh& mesh_ = *run_.ranks;
  Validation validation_{run_.validation, run_.config, run_, run_.tokenizer, mesh_};
  Stream stream_{run_.device};
  StepTrace trace_{run_, world_, stream_, log_, directory_};  ///< must outlive saves_, which records
  MemoryLedger ledger_;
  RankPlan plan_;  ///< plan of this rank
  std::optional<TrainingStep> step_;
  std::optional<BatchLoader> loader_;
  int64_t steps_ = 0;  ///< steps of the whole run
  CheckpointState state_;

  std::optional<RunDirectory> directory_;  ///< set on rank 0
  RunLog log_;
  std::optional<TimeLimit> time_limit_;  ///< set on rank 0, if a deadline is known
  bool time_is_up_ = false;              ///< time_limit_ caused the last stop request; on rank 0
  StepDeadline deadline_{run_.config.run.deadline_seconds};
  std::optional<RunSaves> saves_;

  StepClock clock_{mesh_};
  LongStep long_step_{mesh_.world(), mesh_.sizes().pipeline, options_.long_step};
  SpeedWatch speed_watch_{mesh_.world()};
  AccountWatch account_{world_, run_.device, options_.powercap};
  LossWatch loss_watch_;  ///< used on rank 0
  std::optional<PeakFlops> peak_flops_;
  int64_t resident_before_bytes_ = 0;  ///< resident memory before planned memory is allocated

  bool start_is_validated_ = false;              ///< train.validate_at_start is done; equal on all ranks
  std::optional<ValidationEvent> start_scores_;  ///< scores of the initial weights, until compared; on rank 0
  int64_t first_step_ = 0;                       ///< steps done before this start
  int64_t at_step_ = 0;                          ///< the step under way, else the last step
  int64_t skips_ = 0;        ///< failed steps since the last update: loss or gradient not finite
  CheckpointState updated_;  ///< if skips_ > 0: the state before the first failed step
  bool was_done_ = false;    ///< this start found nothing to do
  /// Whether this start begins the run with the checkpoint of another run. It first saves a copy, so that
  /// it needs the other run no more.
  bool continues_ = false;
  bool has_no_progress_ = false;  ///< the run ends: restarts made no progress; on rank 0
  bool end_is_logged_ = false;
};

}  // namespace ripstop
