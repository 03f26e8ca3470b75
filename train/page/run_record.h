// All that a report shows of a run, read from its files.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "train/checkpoint/manifest.h"
#include "train/config/run_config.h"
#include "train/evaluate/bootstrap.h"
#include "train/evaluate/predictions.h"
#include "train/page/columns.h"
#include "train/report/metrics.h"

namespace ripstop {

/// A start after the first one.
struct Restart {
  int64_t step = 0;  ///< the step from which the start went on
  double time = 0;
  std::string reason;  ///< why the run had ended before this start
  std::string mesh;
  bool other_mesh = false;  ///< the mesh differs from the previous start's
};

/// Seconds of rank 0 in all steps, validations, saves and starts.
struct TimeUse {
  double steps = 0;     ///< steps, including `exposed`, `data` and `save`
  AxisSeconds exposed;  ///< waits for collectives
  double data = 0, save = 0;
  double validation = 0;
  double saves_between = 0;  ///< saves for which training stood still between steps
  double startup = 0;

  double compute() const { return steps - exposed.sum() - data - save; }
  double total() const { return steps + validation + saves_between + startup; }
};

/// Mean seconds of a step on a host.
struct HostTime {
  double compute = 0, wait = 0;
  double steps = 0;  ///< number of steps in the means
};

/// The scores of RUN/evaluation/NAME.
struct EvaluationRecord {
  std::string name, split;
  std::string data;  ///< the data set, if the run was trained on several
  int64_t step = 0, examples = 0;
  double loss = kUnknown;
  std::array<double, 3> rouge = {kUnknown, kUnknown, kUnknown};
  std::optional<std::array<Interval, 3>> intervals;  ///< 95 %; nullopt unless scores.jsonl has all examples
  double at_limit = kUnknown, empty = kUnknown, repeats = kUnknown, copies = kUnknown;  ///< shares
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
};

struct RunRecord {
  explicit RunRecord(size_t most_columns) : columns(most_columns) {}

  std::string path;                ///< the run's directory
  std::string name;                ///< `path`, or its end (name_shortly)
  std::string state;               ///< RunStatus::state
  std::vector<std::string> notes;  ///< for people: what could not be read
  std::optional<RunConfig> config;
  std::vector<std::string> sets;  ///< short names of the data sets; empty if there is one
  Columns columns;
  std::optional<StartEvent> first_start, last_start;
  std::optional<double> first_loss;
  std::optional<StepMetrics> last_step;
  std::optional<int64_t> diverged;  ///< the first step whose loss or gradient is not finite
  int64_t not_finite = 0;           ///< number of steps whose loss or gradient is not finite
  std::optional<ValidationEvent> best_loss, best_rouge, last_validation;  ///< step 0 is never best
  std::optional<EndEvent> end;                                            ///< the end of the last start
  double time = 0;                                                        ///< time of the last event
  std::vector<Restart> restarts;                                          ///< the first kMostRestarts
  int64_t restart_count = 0;
  std::vector<std::string> changes;    ///< "from step 6 on KEY: old -> new" (StartEvent::changes)
  std::vector<WarningEvent> warnings;  ///< the last kMostWarnings
  int64_t warning_count = 0;
  int64_t checkpoint_count = 0, checkpoint_bytes = 0, failed_saves = 0;
  double checkpoint_seconds = 0;
  TimeUse seconds;
  std::optional<RunAccount> account;  ///< the last account
  std::map<std::string, HostTime> hosts;
  std::optional<CheckpointState> state_of_checkpoint;  ///< the newest; nullopt: none, or damaged
  std::vector<EvaluationRecord> evaluations;           ///< by step, then by name
  std::string predictions_from;                        ///< the evaluation that has `predictions`
  std::vector<Prediction> predictions;                 ///< the first kMostPredictions

  static constexpr size_t kMostRestarts = 200, kMostWarnings = 50, kMostHosts = 4096, kMostPredictions = 20;
};

/// Why a start ended, for people: "a stop was requested". `end`: nullopt if the start wrote no `end` event.
std::string reason_of(const std::optional<EndEvent>& end);

/// Reads the run in `directory`, which may still run and may have no checkpoints. Damage becomes a note, but
/// damaged checkpoints are passed over. Throws Error(kStorage) if metrics.jsonl or LOCK cannot be read.
/// `most_columns`: for Columns. `with_texts`: whether to read documents and summaries.
RunRecord read_run(Io& io, const std::filesystem::path& directory, size_t most_columns, bool with_texts);

/// Names each run by the end of its path: without the folders that all runs share, or, if there is only one
/// run, by the last two names.
void name_shortly(std::vector<RunRecord>& runs);

/// Hides the names of `owners`, hosts (they become "node 1" and so on, alike in all runs), the directories of
/// absolute paths, and texts of warnings and notes. The runs must have been read without texts.
void make_anonymous(std::vector<RunRecord>& runs, const std::set<std::string>& owners);

}  // namespace ripstop
