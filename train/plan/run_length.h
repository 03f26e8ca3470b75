// How long a run is: its data, steps and tokens, its checkpoints on disk, and its time if that is known.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/training_data.h"
#include "train/report/metrics.h"

namespace ripstop {

/// A speed, and how it is known.
struct RunSpeed {
  double tokens_per_second = 0;       ///< of all ranks together
  int64_t tokens_seen = 0;            ///< that the run has trained on already
  std::optional<double> utilization;  ///< the share of the peak that is taken for granted; nullopt: measured
  std::string source;                 ///< "measured by the run's last steps", "data sheet: ..."
};

/// The median speed, in tokens a second, of the last steps since the last start of `log`; nullopt if it made
/// none.
std::optional<double> median_speed_of_last_start(const MetricsLog& log);

/// The median speed of the last steps in a run's metrics.jsonl. nullopt if there are none, if the file cannot
/// be read, or if the run was of another model or sequence length, on another mesh, with other recomputation
/// or on another kind of device than `run` on `target`: their speed says nothing of this one.
std::optional<RunSpeed> measured_speed(const std::filesystem::path& metrics, const ResolvedRun& run,
                                       const RunTarget& target);

/// The speed at 40 % of `peak_flops`, the data-sheet peak of all ranks together, with what backward computes
/// again. Large models reach about that on GPUs, and small ones less. `source` says whose peak it is.
RunSpeed speed_at_peak(const ResolvedRun& run, double peak_flops, const std::string& source);

/// The length of a run.
struct RunLength {
  std::optional<TrainingData> data;  ///< nullopt: there is no data set yet
  std::optional<int64_t> steps;      ///< of the whole run; nullopt: train.epochs of no data set
  int64_t checkpoint_bytes = 0;      ///< of one checkpoint
  std::optional<RunSpeed> speed;     ///< nullopt: nothing is known

  /// The seconds that the rest of the run takes, its training steps alone; nullopt if that is not known.
  std::optional<double> seconds() const;
};

/// Counts the length of `run` on `data`, if there is any. Throws Error(kUsage) if the warm-up is longer than
/// the run. Does not set `speed`.
RunLength run_length(const RunConfig& config, const ResolvedRun& run,
                     const std::optional<TrainingData>& data);

/// A line about the length: a word and what it comes to.
struct LengthLine {
  std::string name;
  std::string text;
};

/// The length in lines for people, those that are known of: data, epoch, run, validation
/// (if it begins or ends anything), checkpoint, time.
std::vector<LengthLine> length_lines(const RunConfig& config, const RunLength& length);

}  // namespace ripstop
