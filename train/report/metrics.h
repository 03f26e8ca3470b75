// metrics.jsonl: what a run did, one JSON object a line, written as it happens and read by people's scripts.
//
// `event` says which: start, step, validation, checkpoint, warning, end. Every event has `step` and `time`
// (seconds since 1970). Numbers have the digits that restore the same double; what is not finite is null. A
// line is written by one write(), so that a killed run leaves at most a torn last line, which readers skip
// and the next run removes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace ripstop {

/// Bytes of one rank by what they hold.
struct MemoryBytes {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t communication = 0;
  int64_t workspace = 0;
  int64_t total = 0;
  bool operator==(const MemoryBytes&) const = default;
};

/// Payload bytes that a rank sends per step on each axis of the mesh, its own block left out.
struct TrafficBytes {
  int64_t replicate = 0;
  int64_t fsdp = 0;
  int64_t tensor = 0;
  bool operator==(const TrafficBytes&) const = default;
};

/// What a step costs a rank, planned or measured.
struct StepCost {
  MemoryBytes memory;
  TrafficBytes traffic_per_step;
  bool operator==(const StepCost&) const = default;
};

/// `start`: once for every time the program begins.
struct StartEvent {
  int64_t step = 0;   ///< the last finished step: 0, or the checkpoint's
  int64_t steps = 0;  ///< of the whole run
  std::vector<std::string> argv;
  std::string version;
  std::string git_commit;
  int64_t replicate = 1;
  int64_t fsdp = 1;
  int64_t tensor = 1;
  std::vector<std::string> hosts;  ///< of each rank
  int64_t parameters = 0;
  double flops_per_token = 0;  ///< causal attention counted as half
  double flops_per_token_full_attention = 0;
  std::string flops_formula;
  StepCost plan;
  double time = 0;
};

/// `step`: once for every optimizer step.
struct StepMetrics {
  int64_t step = 0;         ///< from 1
  int64_t tokens = 0;       ///< of this step, over all ranks
  int64_t tokens_seen = 0;  ///< since step 1
  double loss = 0;          ///< mean over the step's targets
  double grad_norm = 0;     ///< before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  std::optional<double> model_flops_utilization;  ///< 0..1; none where the device's peak is unknown
  std::optional<double> model_flops_utilization_full_attention;
  int64_t peak_memory_bytes = 0;  ///< of the fullest rank
  double communication_exposed_seconds_replicate = 0;
  double communication_exposed_seconds_fsdp = 0;
  double communication_exposed_seconds_tensor = 0;
  double data_wait_seconds = 0;
  double time = 0;
};

/// `validation`.
struct ValidationEvent {
  int64_t step = 0;
  double loss = 0;  ///< mean over all targets of the split
  int64_t target_count = 0;
  double seconds = 0;
  bool best = false;             ///< better than every one before
  std::optional<double> rouge1;  ///< F-measures, 0..1; none where nothing was generated
  std::optional<double> rouge2;
  std::optional<double> rougeL;
  double time = 0;
};

/// `checkpoint`: it is committed.
struct CheckpointEvent {
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double seconds = 0;
  double time = 0;
};

/// `warning`.
struct WarningEvent {
  int64_t step = 0;
  std::string text;
  double time = 0;
};

/// `end`: the program ended by itself.
struct EndEvent {
  int64_t step = 0;
  int exit_code = 0;  ///< of the program; 75: stopped on a signal, to be continued
  StepCost planned;
  StepCost measured;
  int64_t resident_before_bytes = 0;  ///< of rank 0's process, before anything that is planned was allocated
  int64_t resident_peak_bytes = 0;    ///< of that process, at most
  double seconds = 0;                 ///< since the program began
  double time = 0;
};

/// Appends events to a metrics.jsonl; only rank 0 has one. `time` is filled in.
class MetricsFile {
 public:
  /// Opens for appending, made where it is absent; a torn last line is cut off. Throws Error(kStorage).
  explicit MetricsFile(const std::filesystem::path& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  /// Appends one line. Throws Error(kStorage) and leaves no part of the line where the disk is full.
  void write(const StartEvent& event);
  void write(const StepMetrics& event);
  void write(const ValidationEvent& event);
  void write(const CheckpointEvent& event);
  void write(const WarningEvent& event);
  void write(const EndEvent& event);

  /// Returns when all lines are on the disk; before a checkpoint that counts on them is committed.
  void sync();

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// Everything a metrics.jsonl says, each kind in the file's order.
struct MetricsLog {
  std::vector<StartEvent> starts;
  std::vector<StepMetrics> steps;
  std::vector<ValidationEvent> validations;
  std::vector<CheckpointEvent> checkpoints;
  std::vector<WarningEvent> warnings;
  std::vector<EndEvent> ends;
  bool ended = false;  ///< the last line is an `end`
};

/// Reads the file. A torn last line is skipped; keys and events that this version does not know are, too.
/// Throws Error(kStorage) naming file and line for anything else that is no event.
MetricsLog read_metrics(const std::filesystem::path& path);

/// Removes every event later than `step`, so that a run resumed from there has no step twice; a torn last
/// line goes as well. The file is replaced in one rename. Nothing happens where it is absent. Throws
/// Error(kStorage).
void cut_to_step(const std::filesystem::path& path, int64_t step);

}  // namespace ripstop
