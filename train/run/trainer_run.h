// Trainer::Run: one run on one rank. trainer_start.cpp is its start (what is read, checked, resumed and
// announced), trainer.cpp its loop (what happens in each step).
#pragma once
#include <chrono>
#include <optional>

#include "data/batch_loader.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/checkpoint/host_states.h"
#include "train/config/step_range.h"
#include "train/run/run_directory.h"
#include "train/run/run_report.h"
#include "train/run/trainer.h"
#include "train/run/validation.h"
#include "train/step/step_profiler.h"

namespace ripstop {

class Trainer::Run {
 public:
  using Clock = std::chrono::steady_clock;

  Run(const TrainerOptions& options, MpiWorld& world);
  ExitCode train();
  /// Says in `error` and in metrics.jsonl at which step the run ended.
  void end_failed(Error& error) noexcept;

 private:
  // trainer_start.cpp
  void check_agreement();
  void open_directory();
  void resume_or_initialize();
  void announce();

  // trainer.cpp
  bool take_step();
  void log_step(const LoaderStep& loaded, const StepResult& result, double rate, double data_wait);
  void check_numerics(const StepResult& result);
  bool stop_requested() const { return options_.stop_requested && options_.stop_requested(); }
  bool validation_is_due() const;
  void validate_and_save();
  bool accept_scores(const ValidationScores& scores, double seconds);
  void save();
  void write_end(ExitCode code);
  void say_end(ExitCode code);

  MemoryUse planned_memory() const;
  MemoryUse measured_memory();
  void say(const std::string& line) const {
    if (leads_ && options_.say) options_.say(line);
  }
  void warn(const std::string& text);

  TrainerOptions options_;
  MpiWorld& world_;
  const bool leads_;  ///< rank 0 of the mesh: the one that speaks and writes
  const Clock::time_point begin_ = Clock::now();
  PosixIo io_;

  Tokenizer tokenizer_;
  TokenDataset dataset_;
  std::string device_note_;
  Device device_;
  RunTarget target_;
  ResolvedRun resolved_;
  int64_t steps_ = 0;

  DeviceMesh mesh_;
  Validation validation_;
  Stream stream_{device_};
  MemoryLedger ledger_;
  RankPlan plan_;
  std::optional<TrainingStep> step_;
  std::optional<HostStates> states_;
  std::optional<RunDirectory> directory_;
  std::optional<CheckpointWriter> writer_;
  std::optional<BatchLoader> loader_;
  StepProfiler profiler_{parse_step_range(options_.config.run.profile_steps), device_};

  CheckpointState state_;
  int64_t at_step_ = 0;  ///< that is being worked on
  int64_t saved_step_ = -1;
  int64_t skips_ = 0;
  bool stop_agreed_ = false;
  int64_t begun_at_step_ = 0;     ///< where this start found the run
  double step_seconds_ = 0;       ///< smoothed
  double step_seconds_last_ = 0;  ///< of the last step
  int64_t resident_before_bytes_ = 0;
  DeviceMesh::AxisTotals waited_;
  DeviceMesh::AxisBytes step_traffic_;
};

}  // namespace ripstop
