// Everything a run can be told, as one struct; read from TOML, written back, compared on resume.
//
// A key of the file is spelled as its member here: [train] micro_batch_sequences is RunConfig::train's
// micro_batch_sequences. The one table of keys in config_keys.cpp holds type, range, unit and documentation.
// It drives parsing, did-you-mean, writing, comparing and the table of docs/config.md. A new key is a member
// and a row.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/loss_on.h"
#include "model/config.h"

namespace ripstop {

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class Recompute { kAuto, kNone, kSelective, kFull };
enum class ScheduleKind { kCosine, kLinear, kConstant };
enum class FloatChoice { kBfloat16, kFloat32 };
enum class KeepBest { kLoss, kRougeL, kNone };

/// The word of the config file: "auto", "rougeL", ...
std::string_view to_string(DeviceChoice value);
std::string_view to_string(LossOn value);
std::string_view to_string(Recompute value);
std::string_view to_string(ScheduleKind value);
std::string_view to_string(FloatChoice value);
std::string_view to_string(KeepBest value);

struct ConfigKey;

struct RunSection {
  std::string directory;  ///< where everything of this run is written
  int64_t seed = 1;       ///< of the initial weights
  DeviceChoice device = DeviceChoice::kAuto;
  bool deterministic = false;
  std::string profile_steps;  ///< "10-12", or empty
  bool operator==(const RunSection&) const = default;
};

/// The sizes (defaults of a preset already filled in; `vocab_size` 0: the data set's) and where they come
/// from. With `pretrained` the sizes are those of its config.json, and here 0.
struct ModelSection : ModelConfig {
  std::string pretrained;
  std::string preset;
  bool operator==(const ModelSection&) const = default;
};

struct MeshSection {
  int64_t replicate = 1;
  std::optional<int64_t> fsdp;  ///< none: "auto", all ranks that replicate and tensor leave
  int64_t tensor = 1;
  bool allow_tensor_across_nodes = false;
  std::optional<bool> overlap_tensor;  ///< none: "auto"
  bool operator==(const MeshSection&) const = default;
};

struct DataSection {
  std::string directory;
  int64_t sequence_length = 0;
  bool pack = true;
  LossOn loss_on = LossOn::kSummary;
  int64_t shuffle_seed = 0;  ///< the file's default is run.seed, already filled in
  bool operator==(const DataSection&) const = default;
};

struct TrainSection {
  std::optional<int64_t> steps;   ///< exactly one of steps and epochs is set
  std::optional<int64_t> epochs;  ///< passes over the data
  int64_t global_batch_sequences = 0;
  std::optional<int64_t> micro_batch_sequences;  ///< per tensor group; none: "auto"
  Recompute recompute = Recompute::kAuto;
  bool reshard_after_forward = true;
  int64_t validate_every = 0;  ///< steps; 0: off
  double max_grad_norm = 1.0;  ///< 0: off
  bool operator==(const TrainSection&) const = default;
};

struct OptimizerSection {
  double learning_rate = 0;
  std::array<double, 2> betas = {0.9, 0.95};
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool decay_norms = false;
  bool operator==(const OptimizerSection&) const = default;
};

struct ScheduleSection {
  ScheduleKind kind = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  double minimum_ratio = 0.0;
  bool operator==(const ScheduleSection&) const = default;
};

struct PrecisionSection {
  FloatChoice compute = FloatChoice::kBfloat16;
  FloatChoice reduce = FloatChoice::kFloat32;
  bool operator==(const PrecisionSection&) const = default;
};

struct CheckpointSection {
  int64_t every_steps = 500;  ///< 0: only at the end and on a signal
  int64_t keep = 3;           ///< newest checkpoints kept, the best beside them; 0: all
  KeepBest keep_best = KeepBest::kLoss;
  bool asynchronous = false;
  bool operator==(const CheckpointSection&) const = default;
};

struct GenerationSection {
  int64_t num_beams = 1;
  double length_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;  ///< 0: off
  int64_t max_new_tokens = 64;
  int64_t validate_examples = 0;  ///< 0: no ROUGE while training
  bool operator==(const GenerationSection&) const = default;
};

struct LogSection {
  int64_t every_steps = 10;
  bool tensorboard = false;
  bool operator==(const LogSection&) const = default;
};

struct RunConfig {
  RunSection run;
  ModelSection model;
  MeshSection mesh;
  DataSection data;
  TrainSection train;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  PrecisionSection precision;
  CheckpointSection checkpoint;
  GenerationSection generation;
  LogSection log;
  bool operator==(const RunConfig&) const = default;
};

/// Reads the TOML file, then the overrides ("section.key=value", the value in TOML or a bare word), fills
/// presets and defaults, checks every value and what they imply together. Throws Error(kUsage) with file,
/// line and the nearest valid key; Error(kResources) where mesh.tensor does not divide the model's heads.
RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides = {});

/// The same for TOML already in memory; `name` stands for the file in messages.
RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           std::span<const std::string> overrides = {});

/// Where the file or the overrides give `key`: "run.toml:12" or "command line"; "" if neither does. For
/// messages about a config that load_run_config accepted.
std::string place_of_key(const ConfigKey& key, const std::string& path,
                         std::span<const std::string> overrides);

/// The whole config as TOML, every key with its value; parse_run_config gives back an equal config.
std::string to_toml(const RunConfig& config);

/// One key whose value differs between two configs, values as in TOML.
struct ConfigDifference {
  std::string key;
  std::string old_value;
  std::string new_value;
  bool may_change_on_resume;  ///< whether a run that has begun may go on with it

  /// "train.steps: 2000 -> 4000".
  std::string text() const;
};

/// Every key that differs, in the table's order.
std::vector<ConfigDifference> compare(const RunConfig& old_config, const RunConfig& new_config);

/// Throws Error(kUsage) that lists old -> new of every key that a run which has begun must not change;
/// returns the other differences, to be shown. Paths (run.directory, data.directory) may differ: data sets
/// are compared by their content.
std::vector<ConfigDifference> check_resume(const RunConfig& old_config, const RunConfig& new_config);

/// The table of docs/config.md: every key with default, unit, meaning and what it is called elsewhere. GitHub
/// Markdown.
std::string config_table_markdown();

}  // namespace ripstop
