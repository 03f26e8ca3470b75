// metrics.jsonl: what a run did, one JSON object a line, written as it happens and read by people's scripts.
//
// `event` names the kind: start, step, validation, checkpoint, warning, end. Every event has `step` and
// `time` (seconds since 1970). Numbers have enough digits to restore the same double; a number that is not
// finite is null. One write() writes a line, so a killed run leaves at most a torn last line. Readers skip
// it, and the next run removes it. A crash of the machine or an editor may damage other lines, too: a log
// never stops a run, so readers pass over lines that are no events, and the next run keeps a copy of the
// file.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "data/files/file.h"
#include "model/device/device.h"
#include "parallel/mesh_axes.h"

namespace ripstop {

/// The memory and the traffic of a step on one rank, planned or measured.
struct StepCost {
  MemoryUse memory;
  AxisBytes traffic_per_step;
  bool operator==(const StepCost&) const = default;
};

/// The training set as the run uses it.
struct DataUse {
  std::string kind = {};  ///< "summary" or "text"; empty in logs of versions that did not write it
  int64_t examples = 0;
  int64_t cut_documents = 0;  ///< examples whose document loses its end
  int64_t cut_summaries = 0;  ///< examples that lose the end of their summary, and the whole document
  int64_t cut_tokens = 0;     ///< what both lose
  int64_t sequences_per_epoch = 0;
  int64_t tokens_per_epoch = 0;
  bool operator==(const DataUse&) const = default;
};

/// Where the time of a start goes, on rank 0: it counts there too when rank 0 waits for other ranks.
struct StartupSeconds {
  double program = 0;  ///< from the start of the process: loading the program, reading the config
  double mpi = 0;      ///< MPI, the ranks' watchdogs, the groups of the mesh
  double data = 0;     ///< opening and checking data sets and tokenizer, packing
  double memory = 0;   ///< the device, its peak, the plan, allocating
  double weights = 0;  ///< the first weights, drawn or read
  double resume = 0;   ///< the run's directory and lock, looking for a checkpoint and reading it
  double other = 0;
  std::optional<double> first_step = {};  ///< only in the first `step` of a start
  double total = 0;                       ///< sum of all
  bool operator==(const StartupSeconds&) const = default;
};

/// `start`: written every time the program begins.
struct StartEvent {
  int64_t step = 0;   ///< the last finished step: 0, or the checkpoint's
  int64_t steps = 0;  ///< of the whole run
  std::vector<std::string> argv;
  std::string version;
  std::string git_commit;
  MeshSizes mesh = kMeshOfOne;
  std::vector<std::string> hosts;     ///< of each rank
  std::string recompute = "none";     ///< what was decided; logs of versions without it did not recompute
  int64_t micro_batch_sequences = 0;  ///< what was decided; 0 in logs of versions that did not write it
  int64_t micro_batches = 0;          ///< of a data rank in a step; likewise
  DataUse data;
  int64_t checkpoint_bytes = 0;    ///< of one checkpoint
  int64_t takeover = 0;            ///< number (Takeovers); 0: the run was done, or an older version wrote it
  std::optional<double> deadline;  ///< seconds since 1970 at which the job ends; nullopt if not known
  std::string deadline_source;     ///< how that is known: the variable's name, or "squeue"
  int64_t parameters = 0;
  int64_t trained_parameters = 0;
  double flops_per_token = 0;  ///< causal attention counted as half
  double flops_per_token_full_attention = 0;
  std::string flops_formula;
  std::optional<double> peak_flops_per_second;  ///< of all ranks together; nullopt if not known
  std::string peak_flops_source;                ///< how it is known: from a data sheet, or measured
  StepCost plan;
  int64_t kernel_plans = 0;               ///< of libraries, made before the first step; on GPUs
  double kernel_plans_seconds = 0;        ///< that took
  std::optional<StartupSeconds> startup;  ///< up to this event; nullopt in logs of versions before 0.2.0
  double time = 0;
};

/// `step`: written for every optimizer step.
struct StepMetrics {
  int64_t step = 0;         ///< from 1
  int64_t tokens = 0;       ///< of this step, over all ranks
  int64_t tokens_seen = 0;  ///< since step 1
  double loss = 0;          ///< mean over the step's targets
  double grad_norm = 0;     ///< before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double>
      model_flops_utilization;  ///< of the peak in `start`, 0..1; nullopt if that is not known
  std::optional<double> model_flops_utilization_full_attention;
  int64_t peak_memory_bytes = 0;  ///< of rank 0, since the program began
  AxisSeconds communication_exposed_seconds;
  double data_wait_seconds = 0;
  double save_wait_seconds = 0;           ///< that the updates waited for a save to read what they change
  std::optional<StartupSeconds> startup;  ///< up to the end of the first step of a start; else nullopt
  double time = 0;
};

/// `hosts`: written for every window of steps (SpeedWatch), if there are several ranks.
struct HostsEvent {
  struct SlowRank {
    int64_t rank = 0;  ///< the launcher's number
    std::string host;
    double speed = 0;  ///< by the median of all ranks
    bool operator==(const SlowRank&) const = default;
  };
  int64_t step = 0;                     ///< the last of the window
  int64_t steps = 0;                    ///< of the window
  std::vector<std::string> hosts;       ///< each once, in mesh order
  std::vector<double> compute_seconds;  ///< of each host, of a step: of the rank that computes longest
  std::vector<double> wait_seconds;     ///< of the same rank, for collectives
  std::vector<SlowRank> slow;
  std::string exclude;  ///< "--exclude=n2" if a rank is slow; else empty
  double time = 0;
};

/// `validation`.
struct ValidationEvent {
  int64_t step = 0;  ///< 0: the initial weights
  double loss = 0;   ///< mean over all targets of the split
  int64_t target_count = 0;
  double seconds = 0;
  bool best = false;             ///< better than all validations before but that of step 0
  std::optional<double> rouge1;  ///< F-measures, 0..1; nullopt if nothing was generated
  std::optional<double> rouge2;
  std::optional<double> rougeL;
  double time = 0;
};

/// What happens to a save before it is a checkpoint.
struct SaveState {
  static constexpr const char* kBegun = "begun";
  static constexpr const char* kFailed = "failed";  ///< the checkpoints before it stay
};

/// `save`: written when a save has begun, and if it fails.
struct SaveEvent {
  int64_t step = 0;           ///< whose weights are saved
  std::string state;          ///< one of the SaveState words
  double waited_seconds = 0;  ///< of `begun`: for the save before it, which was still being written
  double time = 0;
};

/// `checkpoint`: written when the checkpoint is committed.
struct CheckpointEvent {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double seconds = 0;  ///< until the last rank had written, and of the commit, which may come steps later
  double waited_seconds = 0;  ///< of them, those that training stood still
  double time = 0;
};

/// `warning`.
struct WarningEvent {
  int64_t step = 0;
  std::string text;
  double time = 0;
};

/// Why a run ended.
struct EndReason {
  static constexpr const char* kSteps = "steps";                   ///< all are done
  static constexpr const char* kNoImprovement = "no_improvement";  ///< train.stop_after_validations
  static constexpr const char* kStopRequested = "stop_requested";
  static constexpr const char* kTimeLimit = "time_limit";    ///< the run stopped itself before its deadline
  static constexpr const char* kNoProgress = "no_progress";  ///< restarts without a new checkpoint
  static constexpr const char* kError = "error";
};

/// `end`: written if the program ends by itself, also after an error.
struct EndEvent {
  int64_t step = 0;
  int exit_code = 0;                  ///< of the program; 75: a stop was requested, run the command again
  std::string reason;                 ///< one of the EndReason words; empty in files of older versions
  StepCost planned;                   ///< of rank 0
  StepCost measured;                  ///< of rank 0
  int64_t resident_before_bytes = 0;  ///< of rank 0's process, before it allocated any planned memory
  int64_t resident_peak_bytes = 0;    ///< the peak of that process
  double seconds = 0;                 ///< since the program began
  double time = 0;
};

/// Appends events to a metrics.jsonl and fills in `time`. Only rank 0 has one.
class MetricsFile {
 public:
  /// Opens the file for appending, and makes it if it is absent. Cuts off a torn last line. Throws
  /// Error(kStorage).
  explicit MetricsFile(const std::filesystem::path& path);

  /// Appends one line. Defined for each event above. If that fails, as on a full disk, throws
  /// Error(kStorage), leaves no part of the line in the file, and keeps it in memory: the next write, and
  /// sync, write it first.
  template <class Event>
  void write(const Event& event);
  /// Keeps the line in memory: the next write, and sync, write it first.
  template <class Event>
  void keep(const Event& event);
  /// As `write`, but if that fails, the line does not wait: how the process ends may change by then.
  void write_end(const EndEvent& event);

  /// Writes the lines that wait, and returns when all lines are on the disk. Call it before a checkpoint is
  /// committed: a resumed run counts on the lines before its checkpoint. Throws Error(kStorage).
  void sync();

  /// Lines that wait in memory, and their bytes.
  int64_t waiting_lines() const;
  int64_t waiting_bytes() const { return std::ssize(waiting_); }

 private:
  void write_waiting();

  AppendFile file_;
  std::string waiting_;  ///< whole lines
};

/// All events of a metrics.jsonl, each kind in the file's order.
struct MetricsLog {
  std::vector<StartEvent> starts;
  std::vector<StepMetrics> steps;
  std::vector<ValidationEvent> validations;
  std::vector<HostsEvent> hosts;
  std::vector<SaveEvent> saves;
  std::vector<CheckpointEvent> checkpoints;
  std::vector<WarningEvent> warnings;
  std::vector<EndEvent> ends;
  bool ended = false;  ///< the last event is an `end`
  std::string damage;  ///< "2 lines are no events, the first is line 7: no JSON"; or empty
};

/// Reads the file. Skips a torn last line, keys and events that this version does not know, and lines that
/// are no events, which `damage` tells of. Throws Error(kStorage) if the file cannot be read, and, without
/// waiting for anybody to write, if it is no regular file.
MetricsLog read_metrics(const std::filesystem::path& path);

/// The first event of the file if it is a `start` and can be read; nullopt otherwise. Reads the first line
/// alone.
std::optional<StartEvent> first_start(const std::filesystem::path& path);

/// Throws Error(kStorage) if the file exists and cannot be read or is no regular file.
void check_metrics_file(const std::filesystem::path& path);

/// Makes the log ready for a run that goes on from `step`; call it before a MetricsFile opens it. Removes
/// every event later than `step`, so that no step is there twice, a torn last line, because its step cannot
/// be read, and lines that are no events. (AppendFile also cuts off a torn line: it does so for every log,
/// and also if nobody cut the file to a step.) Replaces the file in one rename if anything is removed or if
/// the file has other hard links, because lines that are appended would show there, and in any case with
/// `replace`: what another process has open is another file then. Does nothing if the file is absent. Throws
/// Error(kStorage).
///
/// First copies the file to PATH.damaged if lines are no events, or else to PATH.uncut if it tells of a
/// checkpoint later than `step`: then steps are removed that the run had saved. If that name is taken, .2, .3
/// and so on is added: nothing is overwritten. Returns a text for people about the copy; empty if there is
/// none.
std::string cut_to_step(const std::filesystem::path& path, int64_t step, bool replace = false);

}  // namespace ripstop
