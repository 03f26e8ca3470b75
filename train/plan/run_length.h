// The length of a run: data, steps and tokens, checkpoints on disk, and the time if it is known.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/plan/training_data.h"
#include "train/report/metrics.h"

namespace ripstop {

struct RunSpeed {
  double tokens_per_second = 0;  ///< the sum over all ranks
  int64_t tokens_seen = 0;       ///< tokens that the run has trained on already
  std::string source;            ///< "measured by the run's last steps", "by data sheet: ..."
};

/// The last steps in `log`, at most `most`, of its last start: earlier ones may be from other machines. In
/// the median of 21 steps, those with saves or validations hardly count.
std::span<const StepMetrics> last_steps(const MetricsLog& log, size_t most = 21);

/// Median tokens a second of last_steps(); nullopt without steps, or if it is 0.
std::optional<double> median_speed_of_last_start(const MetricsLog& log);

/// median_speed_of_last_start() as a RunSpeed; nullopt without it, or if that start differs in the number of
/// parameters, FLOPs a token, mesh, recomputation or kind of device.
std::optional<RunSpeed> measured_speed(const MetricsLog& log, const ResolvedRun& run,
                                       const RunTarget& target);

struct RunLength {
  std::optional<TrainingData> data;  ///< nullopt: there is no data set yet
  std::optional<int64_t> steps;      ///< steps of the whole run; nullopt: train.epochs needs a data set
  int64_t checkpoint_bytes = 0;      ///< size of one checkpoint
  int64_t kept_checkpoints = 0;      ///< kept_checkpoints()
  double step_tokens = 0;            ///< tokens of a step, the mean
  int64_t nodes = 0;                 ///< 0: not known
  std::optional<RunSpeed> speed;     ///< nullopt: not known
  std::optional<double> watts;       ///< power of all ranks; nullopt: not known
  bool is_refused = false;           ///< the run cannot start or go on, so its time is not known

  /// The time of the remaining steps, without validations and saves; nullopt: not known.
  std::optional<double> seconds() const;
  double step_seconds() const { return step_tokens / speed->tokens_per_second; }        ///< needs `speed`
  double node_hours() const { return *seconds() * static_cast<double>(nodes) / 3600; }  ///< needs seconds()
  /// Energy of the remaining steps; nullopt: not known.
  std::optional<double> kwh() const;
};

/// The number of checkpoints that a save leaves: checkpoint.keep, and the best one besides; 0: all.
int64_t kept_checkpoints(const RunConfig& config, const ResolvedRun& run);

/// The data, steps, step_tokens and checkpoints of `run`; leaves the rest unset. Throws the error of
/// check_steps() for the steps that train.epochs come to.
RunLength run_length(const RunConfig& config, const ResolvedRun& run,
                     const std::optional<TrainingData>& data);

/// Facts of the rows of `data` in sequences of `sequence_length`; the default without data.
StepRows rows_of(const std::optional<TrainingData>& data, int64_t sequence_length);

/// Sets run.time, length.speed and length.watts, if they are known: by the rates of `target`, else, on GPUs,
/// by the data sheet of the GPU named `gpu` (CudaGpu::name; "": none).
void add_planned_time(RunTarget target, const std::string& gpu, ResolvedRun& run, RunLength& length);

struct LengthLine {
  std::string name;
  std::string text;
};

/// The length in lines for people: data (of each set), epoch, run, schedule, validation (if one precedes step
/// 1 or may end the training), checkpoint, time. Leaves out unknown facts.
std::vector<LengthLine> length_lines(const RunConfig& config, const RunLength& length);

}  // namespace ripstop
