#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/files/io.h"
#include "train/checkpoint/run_lock.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The state of a run, as `ripstop status` shows it.
struct RunStatus {
  std::filesystem::path directory;
  /// "running", "done", "stopped" (the same command resumes the run), "failed (77)" with the exit code,
  /// "interrupted" (no `end` event), "empty" (nothing logged), or "unreadable".
  std::string state;
  std::string note;  ///< other facts, for people; may be empty
  int64_t step = 0;
  int64_t steps = 0;  ///< steps of the whole run; 0: unknown
  std::optional<double> loss;
  std::optional<double> learning_rate;
  std::optional<double> best_validation_loss;  ///< the lowest; initial weights do not count
  /// Each of several data sets and its loss in the validation of best_validation_loss; empty if not known.
  std::vector<std::pair<std::string, double>> best_validation_sets;
  std::optional<double> best_rougeL;  ///< the highest of the validations
  std::optional<double> tokens_per_second;
  std::optional<double> eta_seconds;         ///< time to the end; only while running
  std::optional<int64_t> newest_checkpoint;  ///< step of the newest checkpoint
  std::optional<int64_t> saving_step;        ///< step of the save under way; only while running
  int64_t size_bytes = 0;                    ///< all files in the directory; targets of links left out
  std::optional<double> started_at;          ///< time of the first start, in seconds since 1970
  std::vector<std::string> slow_ranks;       ///< "rank 3 (n2) at 0.52 of the median speed"; while running
  /// "rank 4 (n3) was slow at step 280, at 0.65 of the median speed": ranks that were slow since the last
  /// start and are not now; the latest first; only while running.
  std::vector<std::string> were_slow;
  std::string exclude;             ///< Slurm's option that leaves out the nodes of slow ranks; may be empty
  std::optional<double> deadline;  ///< end of the job in seconds since 1970, if known; only while running
  std::optional<double> stops_at;  ///< time of the stop, estimated from the log; only while running
  std::optional<RunAccount> account;           ///< the last in the log
  std::optional<double> seconds_since_update;  ///< age of metrics.jsonl; nullopt: absent, or in the future
};

/// Reads the run's files, and asks the system whether its process runs (find_run_owner). Reads head and tail
/// of a long log (read_log_ends), and takes the best score between them from the newest checkpoint. Throws
/// nothing: a run that cannot be read is "unreadable", and a damaged metrics.jsonl gives a note.
RunStatus read_status(Io& io, const std::filesystem::path& directory);

/// RunStatus::state of a run whose owner is in state `owner`. `end`: the last event, if it is an `end`.
/// `is_empty`: nothing is logged.
std::string state_text(RunOwner::State owner, const std::optional<EndEvent>& end, bool is_empty);

/// A table with a line for each run, and the notes below. Every line ends with a line end.
std::string status_table(std::span<const RunStatus> runs);

/// A run in one line, without a line end and without fields that change while nothing happens.
std::string status_line(const RunStatus& run);

}  // namespace ripstop
