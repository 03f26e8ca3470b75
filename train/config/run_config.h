// The config of a run as one struct, which is read from TOML, written back, and compared when a run resumes.
//
// A key is spelled like its member: [train] micro_batch_sequences is RunConfig::train.micro_batch_sequences.
// The table in config_keys.cpp drives parsing, hints, writing, comparing and docs/config.md. A new key is a
// member here and a row there.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/loss_on.h"
#include "model/config.h"
#include "model/core/words.h"
#include "model/lora.h"
#include "parallel/mesh_axes.h"
#include "train/config/generation_settings.h"

namespace ripstop {

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class RecomputeChoice { kAuto, kNone, kSelective, kFull };
enum class ScheduleKind { kCosine, kLinear, kConstant, kWsd };
/// The shape of the learning rate's decay at the end of ScheduleKind::kWsd.
enum class ScheduleDecay { kLinear, kOneMinusSqrt, kCosine };
enum class FloatChoice { kBfloat16, kFloat32 };
enum class KeepBest { kLoss, kRougeL, kNone };
/// Initial values of the rows of tokens that a pretrained model does not have.
enum class ResizeVocabulary { kNone, kMean, kNormal };

template <>
inline constexpr std::array<std::string_view, 3> kWords<DeviceChoice> = {"auto", "cpu", "cuda"};
template <>
inline constexpr std::array<std::string_view, 5> kWords<LossOn> = {"auto", "summary", "all", "assistant",
                                                                   "last"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<RecomputeChoice> = {"auto", "none", "selective",
                                                                            "full"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<ScheduleKind> = {"cosine", "linear", "constant",
                                                                         "wsd"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<ScheduleDecay> = {"linear", "1-sqrt", "cosine"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<FloatChoice> = {"bfloat16", "float32"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<KeepBest> = {"loss", "rougeL", "none"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<ResizeVocabulary> = {"none", "mean", "normal"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<EarlyStopping> = {"false", "true", "never"};

struct RunSection {
  std::string directory;  ///< for all files of the run
  int64_t seed = 1;       ///< for training; default of data.shuffle_seed
  DeviceChoice device = DeviceChoice::kAuto;
  bool deterministic = false;
  std::string profile_steps;                ///< "10-12", or empty
  std::optional<int64_t> deadline_seconds;  ///< nullopt: "auto" (StepDeadline)
  std::string continue_from;                ///< the run or checkpoint that a new run continues; or empty
  bool operator==(const RunSection&) const = default;
};

/// The sizes of the model, from the preset or from keys. vocab_size is 0 if the data set decides it; all
/// sizes are 0 if the `pretrained` model decides them.
struct ModelSection : ModelConfig {
  std::string pretrained;
  ResizeVocabulary resize_vocabulary = ResizeVocabulary::kNone;  ///< for the `pretrained` model
  std::string preset;
  bool operator==(const ModelSection&) const = default;
};

/// Adapters beside the frozen weights of model.pretrained; none if the rank is 0.
struct LoraSection : LoraConfig {
  std::string adapter;  ///< a PEFT adapter to begin with; empty: new adapters
  bool operator==(const LoraSection&) const = default;
};

/// Each axis is a key. nullopt for fsdp is "auto": all ranks that the other axes leave.
struct MeshSection : PerAxis<std::optional<int64_t>, true> {
  int64_t pipeline_stages_per_rank = 1;
  std::optional<std::vector<int64_t>> pipeline_layers;  ///< layers of each stage; nullopt: "auto"
  bool allow_tensor_across_nodes = false;
  std::optional<bool> overlap_tensor;  ///< nullopt: "auto"
  bool operator==(const MeshSection&) const = default;
};

struct DataSection {
  std::string directory;                 ///< the data set; empty: `directories` is set
  std::vector<std::string> directories;  ///< several data sets
  /// Relative chance of each of `directories` to give a sequence; empty: an epoch has all sequences.
  std::vector<double> weights;
  int64_t sequence_length = 0;
  bool pack = true;
  LossOn loss_on = LossOn::kAuto;
  bool shuffle = true;
  int64_t shuffle_seed = 0;  ///< run.seed if the config does not give it
  bool operator==(const DataSection&) const = default;

  struct Problem {
    const char* key;
    std::string what, hint;
  };
  /// The reason to refuse the data sets or data.weights; nullopt: none. `has_epochs`: train.epochs is given.
  std::optional<Problem> problem(bool has_epochs) const;
  /// The directories of all data sets, in the order of their numbers.
  std::vector<std::string> all() const { return directories.empty() ? std::vector{directory} : directories; }
  /// The key of all(), for messages.
  const char* key() const { return directories.empty() ? "data.directory" : "data.directories"; }
  /// The directory of the first data set, whose tokenizer is used for all of them.
  const std::string& first() const { return directories.empty() ? directory : directories.front(); }
  /// The share of each data set in the sequences; empty without weights.
  std::vector<double> shares() const;
  /// Whether `other` has the same shares(), up to rounding.
  bool draws_like(const DataSection& other) const;
};

struct TrainSection {
  std::optional<int64_t> steps;   ///< nullopt: `epochs` is set
  std::optional<int64_t> epochs;  ///< passes over the data; nullopt: `steps` is set
  int64_t global_batch_sequences = 0;
  std::optional<int64_t> micro_batch_sequences;  ///< per data rank; nullopt: "auto"
  RecomputeChoice recompute = RecomputeChoice::kAuto;
  std::optional<bool> reshard_after_forward;  ///< nullopt: "auto"
  bool validate_at_start = false;
  int64_t validate_every = 0;  ///< steps between validations; 0: off
  /// Validations in a row without improvement that end the run; 0: off.
  int64_t stop_after_validations = 0;
  double max_grad_norm = 1.0;  ///< gradients are clipped to this norm; 0: off
  bool operator==(const TrainSection&) const = default;

  bool validates() const { return validate_at_start || validate_every > 0; }
};

struct OptimizerSection {
  double learning_rate = 0;
  std::array<double, 2> betas = {0.9, 0.95};
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  bool decay_norms = false;
  FloatChoice moments = FloatChoice::kFloat32;
  bool operator==(const OptimizerSection&) const = default;
};

struct ScheduleSection {
  ScheduleKind kind = ScheduleKind::kCosine;
  int64_t warmup_steps = 0;
  double minimum_ratio = 0.0;
  double decay_ratio = 0.1;  ///< share of the run's steps in which the learning rate of kWsd falls
  ScheduleDecay decay = ScheduleDecay::kLinear;
  bool operator==(const ScheduleSection&) const = default;

  /// The number of steps, at the end of a run of `steps`, in which the learning rate of kWsd falls; rounded.
  int64_t decay_steps(int64_t steps) const { return std::llround(decay_ratio * static_cast<double>(steps)); }
};

struct PrecisionSection {
  FloatChoice compute = FloatChoice::kBfloat16;
  FloatChoice reduce = FloatChoice::kFloat32;
  bool operator==(const PrecisionSection&) const = default;
};

struct CheckpointSection {
  int64_t every_steps = 500;  ///< steps between checkpoints; 0: only best ones, and at the end or a stop
  int64_t keep = 3;           ///< newest checkpoints to keep, besides the best one; 0: all
  KeepBest keep_best = KeepBest::kLoss;
  bool asynchronous = true;
  std::optional<int64_t> snapshot_mib;  ///< host memory for a rank's copies; nullopt: "auto"
  bool operator==(const CheckpointSection&) const = default;
};

struct GenerationSection : GenerationSettings {
  int64_t validate_examples = 0;  ///< examples to summarize at a validation; 0: none, so no ROUGE
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
  LoraSection lora;
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

/// Reads the TOML file, then the overrides ("section.key=value", the value in TOML or a bare word). Fills in
/// presets and defaults. Checks each value, and the rules between keys. Throws Error(kUsage), with file, line
/// and the nearest valid key, for a wrong config; Error(kResources) if its only problem is that mesh.tensor
/// does not divide the model's heads.
RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides = {});

/// Same as load_run_config, but reads TOML from memory. `name`: the name of this text in messages.
RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           std::span<const std::string> overrides = {});

/// Throws Error(kUsage) if a run of `steps` steps has no room for warm-up and decay. `what`: the steps in the
/// message, "train.steps 100".
void check_steps(const ScheduleSection& schedule, int64_t steps, const std::string& what);

/// A note for each key of [generation] that differs from its default without effect (see that_count()).
std::vector<std::string> ignored_generation_notes(const RunConfig& config);

/// Whether one of `overrides`, which load_run_config accepted, sets the key `path` ("run.directory").
bool is_overridden(std::string_view path, std::span<const std::string> overrides);

/// Steps `first` to `last`, counted from 1; no steps if last < first.
struct StepRange {
  int64_t first = 1, last = 0;
};

/// Parses run.profile_steps: "10-12", or "" for no steps. Throws Error(kUsage) for any other text, and for a
/// range that begins before step 1 or ends before it begins.
StepRange parse_step_range(std::string_view text);

/// The config as TOML: each key that has a written_value(). parse_run_config reads back an equal config.
std::string to_toml(const RunConfig& config);

/// A key whose value differs between two configs. Values are written as in TOML.
struct ConfigDifference {
  std::string key;
  std::string old_value;  ///< empty: the key had no value
  std::string new_value;  ///< empty: the key has no value
  bool may_change_on_resume = false;
  bool may_change_if_allowed = false;  ///< ConfigKey::may_change_if_allowed
  bool operator==(const ConfigDifference&) const = default;
  static void fields(auto& self, auto& field) {
    field("key", self.key);
    field("old", self.old_value);
    field("new", self.new_value);
  }

  /// "train.steps: 2000 -> 4000".
  std::string text() const;
};

/// The differences in the order of the table of keys.
std::vector<ConfigDifference> compare(const RunConfig& old_config, const RunConfig& new_config);

/// Compares the keys of [model] of two models whose sizes are all known.
std::vector<ConfigDifference> compare_models(const ModelConfig& old_model, const ModelConfig& new_model);

/// All fields in one line of JSON, which ranks compare.
std::string fields_text(const ModelConfig& model);

/// Returns `differences` if a run may resume with all of them. Otherwise throws Error(kUsage) that lists the
/// refused ones: "WHOSE was begun with another config: KEY: OLD -> NEW, ...". `has_weights`: `whose` has
/// weights, so the hint offers a new run with them, unless a refused key is of [model] or [lora].
/// `allow_changes`: differences with may_change_if_allowed are not refused.
std::vector<ConfigDifference> accept_differences(const std::string& whose,
                                                 std::vector<ConfigDifference> differences,
                                                 bool has_weights = true, bool allow_changes = false);

/// Calls accept_differences for all differences. Messages name the new run.directory, because the stored
/// config of a copied run has the old directory.
std::vector<ConfigDifference> check_resume(const RunConfig& old_config, const RunConfig& new_config,
                                           bool has_weights = true, bool allow_changes = false);

/// `config` with the newest value of each key in `changes`, which are in the order in which they were made.
RunConfig with_changes(const RunConfig& config, const std::vector<ConfigDifference>& changes);

/// The table of docs/config.md in Markdown: all keys with default, unit, meaning and names in other programs.
std::string config_table_markdown();

}  // namespace ripstop
