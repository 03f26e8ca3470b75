// How long a run is: its data, steps and tokens, its checkpoints on disk, and its time if that is known.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/run_speed.h"
#include "train/plan/training_data.h"

namespace ripstop {

/// The length of a run.
struct RunLength {
  std::optional<TrainingData> data;  ///< nullopt: there is no data set yet
  std::optional<int64_t> steps;      ///< of the whole run; nullopt: train.epochs of no data set
  int64_t checkpoint_bytes = 0;      ///< of one checkpoint
  std::optional<RunSpeed> speed;     ///< nullopt: nothing is known

  /// The seconds that the rest of the run takes, its training steps alone; nullopt if that is not known.
  std::optional<double> seconds() const;
};

/// Counts the length of `run`. `dataset` may be null. Throws Error(kUsage) if the warm-up is longer than the
/// run, and what count_training_data throws. Does not set `speed`.
RunLength run_length(const RunConfig& config, const ResolvedRun& run, const TokenDataset* dataset);
/// The same of data that was counted, if there is any.
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
