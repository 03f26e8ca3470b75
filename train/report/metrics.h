// metrics.jsonl: the log of a run, one event as a JSON object a line. `event` names the kind of event. Every
// event has `step` and `time` (seconds since 1970). A number that is not finite is null. A killed run may
// leave a torn last line, which the run removes when it goes on. Readers skip lines that are no events.
#pragma once
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/core/function_ref.h"
#include "model/device/device.h"
#include "parallel/mesh_axes.h"
#include "train/config/run_config.h"
#include "train/report/log_writer.h"
#include "train/report/run_account.h"
#include "train/report/set_metrics.h"

namespace ripstop {

/// The peak memory and the traffic of a step on one rank, planned or measured.
struct StepCost {
  MemoryUse memory;
  AxisBytes traffic_per_step;
  bool operator==(const StepCost&) const = default;
  static void fields(auto& self, auto& field) {
    field.group("memory", [&](auto& part) {
      for (const MemoryCategory category : kMemoryCategories)
        part(to_string(category), self.memory[category]);
      part.derived("total", self.memory.total());
    });
    field("traffic_per_step", self.traffic_per_step);
  }
};

/// Counts of one data set, or of all.
struct DataCounts {
  int64_t examples = 0;
  int64_t cut_documents = 0;    ///< examples whose document, or a user's text, loses its end
  int64_t cut_summaries = 0;    ///< examples that lose the whole document and the end of their summary
  int64_t cut_turns = 0;        ///< turns that conversations lose
  int64_t cut_tokens = 0;       ///< tokens that cut examples lose
  int64_t without_targets = 0;  ///< examples that keep no target
  /// Sequences of the first epoch; other epochs, packed anew, may have a few more or less.
  int64_t epoch_sequences = 0;
  int64_t epoch_tokens = 0;  ///< rows of these sequences without padding: n - 1 for n kept tokens
  bool operator==(const DataCounts&) const = default;
  static void fields(auto& self, auto& field) {
    field("examples", self.examples);
    field("cut_documents", self.cut_documents);
    field("cut_summaries", self.cut_summaries);
    field("cut_turns", self.cut_turns);
    field("cut_tokens", self.cut_tokens);
    field("without_targets", self.without_targets);
    field("sequences_per_epoch", self.epoch_sequences);
    field("tokens_per_epoch", self.epoch_tokens);
  }
};

struct DataUse : DataCounts {
  std::string kind = {};  ///< "summary", "text" or "conversation"
  static void fields(auto& self, auto& field) {
    field("kind", self.kind);
    DataCounts::fields(self, field);
  }
};

/// Seconds of a start on rank 0, including waits for other ranks.
struct StartupSeconds {
  double program = 0;  ///< loading the program, reading the config
  double mpi = 0;      ///< starting MPI, the ranks' watchdogs, the groups of the mesh
  double data = 0;     ///< opening and checking data sets and tokenizer, packing
  double memory = 0;   ///< opening the device, measuring its peak, planning, allocating
  double weights = 0;  ///< drawing or reading the initial weights, reading frozen ones
  double resume = 0;   ///< locking the run's directory, finding and reading a checkpoint
  double other = 0;
  /// Time of the first step; nullopt except in the `step` event of that step.
  std::optional<double> first_step = {};
  double total = 0;
  bool operator==(const StartupSeconds&) const = default;
  static void fields(auto& self, auto& field) {
    field("program", self.program);
    field("mpi", self.mpi);
    field("data", self.data);
    field("memory", self.memory);
    field("weights", self.weights);
    field("resume", self.resume);
    field("other", self.other);
    field.if_known("first_step", self.first_step);
    field("total", self.total);
  }
};

/// `start`: the program begins.
struct StartEvent {
  static constexpr const char* kEvent = "start";
  int64_t step = 0;         ///< the last finished step: 0, or the step of the checkpoint
  int64_t steps = 0;        ///< steps of the whole run
  int64_t tokens_seen = 0;  ///< tokens of all steps before this start
  std::vector<std::string> argv;
  std::string version;
  std::string git_commit;
  MeshSizes mesh = kMeshOfOne;
  std::vector<std::string> hosts;        ///< host of each rank
  std::vector<int64_t> pipeline_layers;  ///< layers of each stage; empty without a pipeline
  /// These three are keys of [train] with the values after "auto" is decided.
  std::string recompute = "none";
  bool reshard_after_forward = true;
  int64_t micro_batch_sequences = 0;  ///< 0 if an edited log lacks it
  int64_t micro_batches = 0;          ///< micro-batches of a data rank in a step
  DataUse data;
  int64_t checkpoint_bytes = 0;    ///< size of one checkpoint
  int64_t takeover = 0;            ///< Takeover::number; 0 if this start recorded none
  std::optional<double> deadline;  ///< end of the job, in seconds since 1970; nullopt if not known
  std::string deadline_source;     ///< "squeue", or the name of an environment variable; or empty
  int64_t parameters = 0;
  int64_t trained_parameters = 0;
  double flops_per_token = 0;                 ///< counts half of full attention, because attention is causal
  double flops_per_token_full_attention = 0;  ///< counts attention as if it were not causal
  std::string flops_formula;
  std::optional<double> peak_flops_per_second;  ///< the sum over all ranks; nullopt if not known
  std::string peak_flops_source;                ///< "measured: ..." or "data sheet: ..."; or empty
  StepCost plan;
  int64_t kernel_plans = 0;  ///< plans of GPU libraries, made before the first step
  double kernel_plans_seconds = 0;
  /// The times from the program's start to this event; nullopt if an edited log lacks them.
  std::optional<StartupSeconds> startup;
  std::optional<std::string> continued_from;  ///< the checkpoint with which run.continue_from began the run
  /// Changes of the config from step `step` + 1 on, which --allow-changes or run.continue_from accepted.
  std::vector<ConfigDifference> changes;
  std::optional<RunAccount> account;  ///< sum over all starts so far; nullopt if a part is lost
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("steps", self.steps);
    field("tokens_seen", self.tokens_seen);
    field("argv", self.argv);
    field("version", self.version);
    field("git_commit", self.git_commit);
    field.group("mesh", [&](auto& mesh) {
      MeshSizes::fields(self.mesh, mesh);
      mesh("hosts", self.hosts);
      mesh("pipeline_layers", self.pipeline_layers);
    });
    field("recompute", self.recompute);
    field("reshard_after_forward", self.reshard_after_forward);
    field("micro_batch_sequences", self.micro_batch_sequences);
    field("micro_batches", self.micro_batches);
    field("data", self.data);
    field("checkpoint_bytes", self.checkpoint_bytes);
    field("takeover", self.takeover);
    field("deadline", self.deadline);
    field("deadline_source", self.deadline_source);
    field("parameters", self.parameters);
    field("trained_parameters", self.trained_parameters);
    field("flops_per_token", self.flops_per_token);
    field("flops_per_token_full_attention", self.flops_per_token_full_attention);
    field("flops_formula", self.flops_formula);
    field("peak_flops_per_second", self.peak_flops_per_second);
    field("peak_flops_source", self.peak_flops_source);
    field("plan", self.plan);
    field("kernel_plans", self.kernel_plans);
    field("kernel_plans_seconds", self.kernel_plans_seconds);
    field.if_known("startup_seconds", self.startup);
    field.if_known("continued_from", self.continued_from);
    field("changes", self.changes);
    field.if_known("account", self.account);
  }
};

/// `step`: an optimizer step.
struct StepMetrics {
  static constexpr const char* kEvent = "step";
  int64_t step = 0;         ///< number of the step, from 1
  int64_t tokens = 0;       ///< tokens of this step on all ranks together
  int64_t tokens_seen = 0;  ///< tokens of all steps since step 1
  double loss = 0;          ///< mean over the step's targets
  double grad_norm = 0;     ///< norm of the gradient before clipping
  double learning_rate = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  /// The used share of StartEvent::peak_flops_per_second; nullopt if the peak is not known.
  std::optional<double> model_flops_utilization, model_flops_utilization_full_attention;
  int64_t peak_memory_bytes = 0;  ///< the peak of rank 0 since the program began
  AxisSeconds communication_exposed_seconds;
  std::optional<std::vector<SetStep>> sets = {};  ///< each of several data sets
  double data_wait_seconds = 0;                   ///< rank 0's waits for the data loader
  double save_wait_seconds = 0;  ///< time that updates waited for a save that still reads the weights
  /// The times from the program's start to the end of its first step; nullopt in later steps.
  std::optional<StartupSeconds> startup;
  std::optional<RunAccount> account = {};  ///< like StartEvent::account; about every ten seconds
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("tokens", self.tokens);
    field("tokens_seen", self.tokens_seen);
    field("loss", self.loss);
    field("grad_norm", self.grad_norm);
    field("learning_rate", self.learning_rate);
    field("step_seconds", self.step_seconds);
    field("tokens_per_second", self.tokens_per_second);
    field("model_flops_utilization", self.model_flops_utilization);
    field("model_flops_utilization_full_attention", self.model_flops_utilization_full_attention);
    field("peak_memory_bytes", self.peak_memory_bytes);
    field("communication_exposed_seconds", self.communication_exposed_seconds);
    field("data_wait_seconds", self.data_wait_seconds);
    field("save_wait_seconds", self.save_wait_seconds);
    field.if_known("sets", self.sets);
    field.if_known("startup_seconds", self.startup);
    field.if_known("account", self.account);
  }
};

/// `hosts`: a window of steps (SpeedWatch) has ended. Written if there are several ranks.
struct HostsEvent {
  static constexpr const char* kEvent = "hosts";
  struct SlowRank {
    int64_t rank = 0;  ///< the launcher's number of the rank
    std::string host;
    double speed = 0;  ///< speed of the rank as a multiple of the median rank's speed
    bool operator==(const SlowRank&) const = default;
    static void fields(auto& self, auto& field) {
      field("rank", self.rank);
      field("host", self.host);
      field("speed", self.speed);
    }
  };
  int64_t step = 0;                     ///< the last step of the window
  int64_t steps = 0;                    ///< steps in the window
  std::vector<std::string> hosts;       ///< names of the hosts, each once, in mesh order
  std::vector<double> compute_seconds;  ///< for each host: time per step on the rank that computes longest
  /// For each host: time per step that the rank of compute_seconds waits for collectives.
  std::vector<double> wait_seconds;
  std::vector<SlowRank> slow;
  std::string exclude;  ///< option of sbatch, "--exclude=n2", for ranks slow in this window; or empty
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("steps", self.steps);
    field("hosts", self.hosts);
    field.rounded("compute_seconds", self.compute_seconds);
    field.rounded("wait_seconds", self.wait_seconds);
    field("slow", self.slow);
    field("exclude", self.exclude);
  }
};

/// `validation`: a validation has ended.
struct ValidationEvent {
  static constexpr const char* kEvent = "validation";
  int64_t step = 0;          ///< the last finished step; 0: the initial weights
  double loss = 0;           ///< mean over all targets, or over the data sets by data.weights
  int64_t target_count = 0;  ///< targets in the split
  double seconds = 0;
  bool best = false;  ///< a new best by checkpoint.keep_best; false in step 0 and for "none"
  std::optional<double> rouge1, rouge2, rougeL;  ///< F-measures, 0..1; nullopt without generated texts
  struct Sample {
    std::string id, summary, reference;  ///< UTF-8
    static void fields(auto& self, auto& field) {
      constexpr size_t kMostBytes = size_t{1} << 20;
      field("id", self.id, kMostBytes);
      field("summary", self.summary, kMostBytes);
      field("reference", self.reference, kMostBytes);
    }
  };
  std::optional<std::vector<Sample>> samples;  ///< the first summaries; nullopt without generated texts
  std::optional<std::vector<SetScores>> sets;  ///< each of several data sets
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("loss", self.loss);
    field.derived("perplexity", std::exp(self.loss));
    field("targets", self.target_count);
    field("seconds", self.seconds);
    field("best", self.best);
    // Without a score the key is absent, because null would mean a score that is not finite.
    field.if_known("rouge1", self.rouge1);
    field.if_known("rouge2", self.rouge2);
    field.if_known("rougeL", self.rougeL);
    field.if_known("samples", self.samples);
    field.if_known("sets", self.sets);
  }
};

/// The words of SaveEvent::state.
struct SaveState {
  static constexpr const char* kBegun = "begun";
  static constexpr const char* kFailed = "failed";
};

/// `save`: a save has begun or failed.
struct SaveEvent {
  static constexpr const char* kEvent = "save";
  int64_t step = 0;           ///< the step of the checkpoint
  std::string state;          ///< a SaveState word
  double waited_seconds = 0;  ///< if `begun`: the wait for the end of the previous save
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("state", self.state);
    field("waited_seconds", self.waited_seconds);
  }
};

/// `checkpoint`: a checkpoint was committed.
struct CheckpointEvent {
  static constexpr const char* kEvent = "checkpoint";
  int64_t step = 0;
  std::string path;
  int64_t bytes = 0;
  double seconds = 0;         ///< time for writing, until the last rank was done, and for the commit
  double waited_seconds = 0;  ///< the part of `seconds` in which training waited
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("path", self.path);
    field("bytes", self.bytes);
    field("seconds", self.seconds);
    field("waited_seconds", self.waited_seconds);
  }
};

/// `warning`: a text for people.
struct WarningEvent {
  static constexpr const char* kEvent = "warning";
  int64_t step = 0;
  std::string text;
  std::optional<double> deadline = {};  ///< new end of the job, in seconds since 1970; nullopt if unchanged
  std::optional<std::string> deadline_source = {};  ///< source of the new end; nullopt if unchanged
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("text", self.text);
    field.if_known("deadline", self.deadline);
    field.if_known("deadline_source", self.deadline_source);
  }
};

struct EndReason {
  static constexpr const char* kSteps = "steps";  ///< all steps are done
  /// train.stop_after_validations ended the run.
  static constexpr const char* kNoImprovement = "no_improvement";
  static constexpr const char* kStopRequested = "stop_requested";
  static constexpr const char* kTimeLimit = "time_limit";    ///< the run stopped itself before its deadline
  static constexpr const char* kNoProgress = "no_progress";  ///< restarted too often without a new checkpoint
  static constexpr const char* kError = "error";
};

/// `end`: the program ends, perhaps after an error.
struct EndEvent {
  static constexpr const char* kEvent = "end";
  int64_t step = 0;
  int exit_code = 0;                  ///< 75: stopped before the run was done, run the command again
  std::string reason;                 ///< an EndReason word
  StepCost planned;                   ///< the plan of rank 0
  StepCost measured;                  ///< measured on rank 0
  int64_t resident_before_bytes = 0;  ///< memory of rank 0's process before it allocated any planned memory
  int64_t resident_peak_bytes = 0;    ///< peak memory of rank 0's process
  double seconds = 0;                 ///< time since decide_run() ended
  std::optional<RunAccount> account;  ///< like StartEvent::account
  double time = 0;
  static void fields(auto& self, auto& field) {
    field("exit_code", self.exit_code);
    field("reason", self.reason);
    field("planned", self.planned);
    field("measured", self.measured);
    field.group("resident", [&](auto& resident) {
      resident("before", self.resident_before_bytes);
      resident("peak", self.resident_peak_bytes);
    });
    field("seconds", self.seconds);
    field.if_known("account", self.account);
  }
};

/// Every event has `step`, `time` and a list of the other fields (data/text/json_struct.h).
using MetricsEvent = std::variant<StartEvent, StepMetrics, HostsEvent, ValidationEvent, SaveEvent,
                                  CheckpointEvent, WarningEvent, EndEvent>;

/// A new file that has the events of metrics.jsonl in another form. How to add one: CONTRIBUTING.md.
struct SecondLog {
  std::filesystem::path path;  ///< empty: there is no second log
  /// The bytes for an event; may be empty. `time`: the event's time, in seconds since 1970.
  std::function<std::string(const MetricsEvent& event, double time)> records;
};

/// The metrics.jsonl of a run. Only rank 0 has one.
class MetricsFile : public LogWriter {
 public:
  explicit MetricsFile(const std::filesystem::path& path, LogRights rights = {}, SecondLog second = {})
      : LogWriter(path, std::move(rights), second.path), second_(std::move(second)) {}
  /// Adds the line of `event`; if event.time is 0, with the present time.
  void write(const MetricsEvent& event);

 private:
  const SecondLog second_;
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
  /// Whether events are missing here (read_log_ends). The last element of each vector is still the log's last
  /// event of that kind, unless the tail has no such event.
  bool has_gap = false;
};

/// Skips a torn last line, unknown keys and events, and lines that are no events; MetricsLog::damage
/// describes these lines. Throws Error(kStorage) if the file cannot be read or is no regular file.
MetricsLog read_metrics(const std::filesystem::path& path);

/// The largest log that read_log_ends() reads whole, and the head and tail that it reads of a larger one.
inline constexpr int64_t kWholeLogBytes = int64_t{16} << 20, kLogHeadBytes = int64_t{1} << 20,
                         kLogTailBytes = int64_t{8} << 20;

/// Same as read_metrics(), but of a log above kWholeLogBytes, reads only the events of its head and tail, and
/// between them the starts from the steps in `started_at`, which must ascend.
MetricsLog read_log_ends(const std::filesystem::path& path, const std::vector<int64_t>& started_at);

/// Calls visit(event) for each event, in the file's order, and stores no event. Returns MetricsLog::damage.
/// Throws like read_metrics.
std::string read_events(const std::filesystem::path& path, FunctionRef<void(const MetricsEvent&)> visit);

/// The first event if it is a readable `start`; else nullopt. Reads the first line only.
std::optional<StartEvent> first_start(const std::filesystem::path& path);

/// Throws Error(kStorage) if the file exists and cannot be read or is no regular file.
void check_metrics_file(const std::filesystem::path& path);

/// Prepares the log for a run that goes on from `step`. Removes a torn last line, lines that are no events,
/// and later events, so that no step is in the log twice. Replaces the file in one rename if anything is
/// removed; if the file has other hard links, so that appended lines do not appear under the other names; and
/// if `replace` is true, so that a process with the old file open no longer writes to the log. Does nothing
/// if the file is absent. Of a long log (kWholeLogBytes), most of the part before `step` is neither checked
/// nor held in memory. Throws Error(kStorage).
///
/// Before that, saves a copy of the log: as PATH.damaged if some lines are no events, else as PATH.uncut if a
/// `checkpoint` event is later than `step`, because the run had saved some removed steps. If the name exists,
/// adds .2, .3 and so on. Returns a text about the copy and about lines missing from the log, or "".
std::string cut_to_step(const std::filesystem::path& path, int64_t step, bool replace = false);

}  // namespace ripstop
