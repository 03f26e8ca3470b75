// Builds a checked config from entries: presets, types, ranges, and rules between keys.
#include "train/config/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "data/text/utf8.h"
#include "model/core/error.h"
#include "model/core/number.h"
#include "train/config/config_entries.h"
#include "train/config/nearest_name.h"

namespace ripstop {
namespace {

// A limit so that a read of /dev/zero ends. read_config_entries() has a lower limit and a better message.
constexpr int64_t kMostBytesRead = int64_t{64} << 20;

// LLaMA 3's rope_original_max_position_embeddings.
constexpr int64_t kLlama3Positions = 8192;

// The hint for a directory: a config in it, the run's first; else the form of the command.
std::string config_inside(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::is_regular_file(directory / "config.toml", error))
    return fmt::format("give {}", shell_word((directory / "config.toml").string()));
  for (const std::string& name : names_in(directory))
    if (name.ends_with(".toml"))
      return fmt::format("give a file in it, such as {}", shell_word((directory / name).string()));
  return "give a file, as in ripstop train CONFIG.toml";
}

// The hint for a path that does not exist: a near one, else the current directory.
std::string config_near(const std::string& path) {
  std::error_code error;
  if (const std::string near = path + ".toml"; std::filesystem::is_regular_file(near, error))
    return fmt::format("did you mean {}?", shell_word(near));
  if (std::string near = hint_for_absent(path, ""); !near.empty()) return near;
  return fmt::format("a relative path counts from the current directory, {}",
                     std::filesystem::current_path(error).string());
}

std::string read_text(const std::string& path) {
  if (path.empty()) throw Error(ExitCode::kUsage, "config file is required", "ripstop train CONFIG.toml");
  std::error_code error;
  // ifstream opens a directory without complaint and then reads nothing.
  if (std::filesystem::is_directory(path, error))
    throw Error(ExitCode::kUsage, fmt::format("config {} is a directory, expected a TOML file", path),
                config_inside(path));
  if (!std::filesystem::exists(path, error) && !error)
    throw Error(ExitCode::kUsage, fmt::format("{}: cannot open: No such file or directory", path),
                config_near(path));
  return read_whole_file(path, kMostBytesRead, ExitCode::kUsage);
}

// Builds the config, except what depends on ranks, data set or device: resolve_run (train/plan) decides that.
class ConfigBuilder {
 public:
  ConfigBuilder(std::string_view toml, const std::string& name, std::span<const std::string> overrides)
      : entries_(read_config_entries(toml, name, overrides, problems_)), name_(name) {}

  RunConfig build() {
    take_preset();
    assign_values();
    check_required();
    // The checks below need valid values.
    refuse_problems(problems_);
    if (!given("data.shuffle_seed")) config_.data.shuffle_seed = config_.run.seed;
    complete_model();
    check_mesh();
    check_lora();
    check_data();
    check_train();
    check_schedule();
    check_profile_steps();
    check_validations();
    check_generation();
    refuse_problems(problems_);
    return config_;
  }

 private:
  // The entry of the key `path`, or null. A value equal to the default counts as given.
  const ConfigEntry* given(std::string_view path) const {
    for (const ConfigEntry& entry : entries_)
      if (entry.key->path() == path) return &entry;
    return nullptr;
  }

  // Adds a problem at the line of the key `path`, or without a line if the key is not given.
  void blame(std::string_view path, const std::string& what, const std::string& hint,
             ExitCode code = ExitCode::kUsage) {
    const ConfigEntry* entry = given(path);
    problems_.push_back({entry != nullptr ? entry->line : 0,
                         (entry != nullptr ? entry->where : name_) + ": " + what, hint, code});
  }

  // Whether `value` of key `path` is at most `most`, the value of key `other`. If not, adds a problem at
  // `path`.
  bool check_at_most(std::string_view path, int64_t value, std::string_view other, int64_t most,
                     const std::string& hint) {
    if (value > most) blame(path, fmt::format("{} {} exceeds {} {}", path, value, other, most), hint);
    return value <= most;
  }

  // Called before assign_values(), so that sizes in the config replace the preset's.
  void take_preset() {
    const ConfigEntry* entry = given("model.preset");
    const auto* word = entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value);
    if (word == nullptr) return;  // assign_values() refuses other types
    std::string names;
    for (const ModelPreset& each : model_presets()) {
      if (each.name == *word) static_cast<ModelConfig&>(config_.model) = each.config;
      names += (names.empty() ? "the presets are " : ", ") + std::string(each.name);
    }
    if (find_model_preset(*word) == nullptr)
      blame("model.preset", fmt::format("unknown model.preset \"{}\"", *word), names);
    drop_rope_constants();
  }

  // Drops the preset's rope constants if the config sets another rope_type, for which they mean nothing.
  void drop_rope_constants() {
    ModelConfig& model = config_.model;
    const ConfigEntry* type = given("model.rope_type");
    if (type == nullptr || type->value == ConfigValue(std::string(to_string(model.rope_type)))) return;
    const ModelConfig unset;
    model.rope_factor = unset.rope_factor;
    model.rope_low_freq_factor = unset.rope_low_freq_factor;
    model.rope_high_freq_factor = unset.rope_high_freq_factor;
    model.rope_original_max_position_embeddings = unset.rope_original_max_position_embeddings;
  }

  void assign_values() {
    for (const ConfigEntry& entry : entries_) {
      try {
        assign_value(entry, config_);
      } catch (const Error& error) {
        problems_.push_back({entry.line, error.what(), error.hint()});
      }
    }
  }

  // Refuses required keys that are missing or an empty path, and an empty run.continue_from.
  void check_required() {
    for (const ConfigKey& key : config_keys()) {
      const bool continues = key.path() == "run.continue_from";
      if (key.presence != Presence::kRequired && !continues) continue;
      const ConfigEntry* entry = given(key.path());
      if (key.path() == "data.directory" && given("data.directories")) continue;
      if (entry == nullptr && !continues && !is_hinted_at(key))
        blame(key.path(), fmt::format("'{}' is required", key.path()),
              fmt::format("{} = {} under [{}]", key.name, expected_type(key), key.section));
      else if (entry != nullptr && entry->value == ConfigValue("") &&
               std::holds_alternative<std::string*>(key.field(config_)))
        blame(key.path(), fmt::format("'{}' must not be empty", key.path()),
              fmt::format("give a path: {} = \"runs/first\"{}", key.name,
                          continues ? "; or leave it out (is a shell variable not set?)" : ""));
    }
  }

  // Whether a hint names this key or its section: then the key is misspelled, not missing.
  bool is_hinted_at(const ConfigKey& key) const {
    return problems_.size() <= kMostProblemsShown &&
           std::ranges::any_of(problems_, [&](const ConfigProblem& problem) {
             return problem.hint.find(fmt::format("'{}'", key.path())) != std::string::npos ||
                    problem.hint.find(fmt::format("did you mean [{}]", key.section)) != std::string::npos;
           });
  }

  void complete_model() {
    ModelSection& model = config_.model;
    if (!model.pretrained.empty()) {
      for (const ConfigEntry& entry : entries_)
        if (entry.key->section == "model" && entry.key->name != "pretrained" &&
            entry.key->name != "resize_vocabulary")
          return blame(entry.key->path(),
                       fmt::format("'{}' cannot stand beside 'model.pretrained'", entry.key->path()),
                       "the sizes come from its config.json");
      return;
    }
    if (model.resize_vocabulary != ResizeVocabulary::kNone)
      return blame("model.resize_vocabulary", "'model.resize_vocabulary' is for a 'model.pretrained'",
                   "leave it out: a new model has as many rows as the data set has tokens");
    if (model.preset.empty() && !given("model.hidden_size")) {
      // Only beside a preset or sizes, an empty model.pretrained counts as absent.
      if (given("model.pretrained"))
        return blame("model.pretrained", "'model.pretrained' is empty",
                     "give the directory of a model; or leave the key out (is a shell variable not set?) and "
                     "give model.preset, which begins with random weights");
      return blame("model.preset", "[model] needs a preset or sizes", "as in preset = \"15m\"");
    }
    for (const char* path :
         {"model.intermediate_size", "model.num_hidden_layers", "model.num_attention_heads"})
      if (model.preset.empty() && !given(path))
        return blame(path, fmt::format("'{}' is required if there is no preset", path),
                     "give it, or model.preset, as in preset = \"15m\"");
    if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
    if (model.max_position_embeddings == 0) model.max_position_embeddings = config_.data.sequence_length;
    if (model.rope_type == RopeType::kLlama3 && model.rope_original_max_position_embeddings == 0)
      model.rope_original_max_position_embeddings = kLlama3Positions;
    check_model();
    model.head_dim = model.head_size();
  }

  void check_model() {
    ModelConfig sizes = config_.model;
    if (sizes.vocab_size == 0) sizes.vocab_size = 1;  // a stand-in: the data set decides the size
    try {
      validate(sizes);
    } catch (const Error& error) {
      return blame_sizes(error.what());
    }
    if (!check_at_most(
            "data.sequence_length", config_.data.sequence_length, "model.max_position_embeddings",
            sizes.max_position_embeddings,
            fmt::format("{}: shorten the sequences, or raise it if training begins from random weights",
                        origin(*find_config_key("model", "max_position_embeddings")))))
      return;
    try {
      check_window(sizes, config_.data.sequence_length);
    } catch (const Error& error) {
      return blame("data.sequence_length", error.what(), error.hint());
    }
    // Blames mesh.tensor, because the sizes of the model are nearly always right.
    try {
      check_tensor_axis(sizes, *config_.mesh.tensor);
    } catch (const Error& error) {
      blame("mesh.tensor", error.what(), error.hint(), error.code());
    }
  }

  // Adds a problem with `what`, a message of validate(). The hint has the source of each key in `what`:
  // preset, default, file or command line.
  void blame_sizes(const std::string& what) {
    std::string blamed, origins, absent;
    for (const ConfigKey& key : config_keys()) {
      if (key.section != "model" || std::ranges::count(words_in(what, " ,"), key.name) == 0) continue;
      const bool is_given = given(key.path()) != nullptr;
      if (is_given && blamed.empty()) blamed = key.path();
      if (!is_given) absent += (absent.empty() ? "" : " and ") + key.path();
      origins += (origins.empty() ? "" : ", ") + origin(key);
    }
    blame(blamed.empty() ? "model.preset" : blamed, "model." + what,
          absent.empty() ? origins : fmt::format("{}: give {} too", origins, absent));
  }

  // "num_key_value_heads = 32 is the preset's (1b)", "hidden_size = 96 is from x.toml:7".
  std::string origin(const ConfigKey& key) const {
    std::string from =
        config_.model.preset.empty() ? "the default" : fmt::format("the preset's ({})", config_.model.preset);
    if (const ConfigEntry* entry = given(key.path()); entry != nullptr)
      from = entry->line > 0 ? "from " + entry->where : "from the command line";
    return fmt::format("{} = {} is {}", key.name, value_as_toml(key, config_), from);
  }

  void check_mesh() {
    const MeshSection& mesh = config_.mesh;
    const int64_t stages = *mesh.pipeline * mesh.pipeline_stages_per_rank;
    if (mesh.pipeline == 1 && stages > 1)
      return blame("mesh.pipeline_stages_per_rank",
                   "'mesh.pipeline_stages_per_rank' is of a pipeline, and mesh.pipeline is 1",
                   "leave it out, or set mesh.pipeline");
    if (mesh.pipeline_layers && std::ssize(*mesh.pipeline_layers) != stages)
      blame("mesh.pipeline_layers",
            fmt::format("mesh.pipeline_layers has {} numbers, the number of stages is {}",
                        mesh.pipeline_layers->size(), stages),
            "give as many, or mesh.pipeline_layers = \"auto\"");
  }

  // Checks [lora] without the model: unplanned_run compares lora.rank with the model's sizes.
  void check_lora() {
    for (const ConfigEntry& entry : entries_)
      if (entry.key->section == "lora" && entry.key->name != "rank" && !config_.lora.any())
        return blame(entry.key->path(),
                     fmt::format("'{}' is of adapters, and there are none", entry.key->path()),
                     "set lora.rank, such as 16, or leave [lora] out");
    if (!config_.lora.any()) return;
    if (config_.model.pretrained.empty())
      return blame("lora.rank", "'lora.rank' trains adapters of a model, and 'model.pretrained' has none",
                   "give model.pretrained the model that they adapt, or set lora.rank to 0");
    if (config_.model.resize_vocabulary != ResizeVocabulary::kNone)
      blame("model.resize_vocabulary",
            "'model.resize_vocabulary' adds rows to the embedding, which stays frozen beside adapters",
            "leave it out, or set lora.rank to 0: then all weights are trained");
    if (!given("lora.alpha"))
      blame("lora.rank", "'lora.alpha' is required with a rank",
            fmt::format("alpha = {} under [lora]: twice the rank is usual", 2 * config_.lora.rank));
  }

  void check_data() {
    if (const auto problem = config_.data.problem(config_.train.epochs.has_value()))
      blame(problem->key, problem->what, problem->hint);
  }

  void check_train() {
    const TrainSection& train = config_.train;
    if (train.steps && train.epochs)
      return blame("train.epochs", "'train.steps' and 'train.epochs' are both given", "keep one of them");
    if (!train.steps && !train.epochs)
      return blame("train.steps", "'train.steps' or 'train.epochs' is required",
                   "steps = 1000 under [train]");
    if (train.micro_batch_sequences)
      check_at_most("train.micro_batch_sequences", *train.micro_batch_sequences,
                    "train.global_batch_sequences", train.global_batch_sequences,
                    "leave it out: \"auto\" takes the largest that fits");
  }

  // With train.epochs the number of steps is not known yet: run_length() checks it.
  void check_schedule() {
    for (const ConfigEntry& entry : entries_)
      if (is_of_wsd(*entry.key) && config_.schedule.kind != ScheduleKind::kWsd)
        return blame(entry.key->path(),
                     fmt::format("'{}' is of schedule.kind = \"wsd\", and the kind is \"{}\"",
                                 entry.key->path(), to_string(config_.schedule.kind)),
                     "set schedule.kind to \"wsd\", or leave the key out");
    if (!config_.train.steps) return;
    try {
      check_steps(config_.schedule, *config_.train.steps,
                  fmt::format("train.steps {}", *config_.train.steps));
    } catch (const Error& error) {
      blame("schedule.warmup_steps", error.what(), error.hint());
    }
  }

  // Checked at the start, because the steps to profile may be hours away.
  void check_profile_steps() {
    const std::optional<int64_t>& steps = config_.train.steps;
    try {
      const StepRange range = parse_step_range(config_.run.profile_steps);
      if (steps && range.last > *steps)
        fail(ExitCode::kUsage, "'run.profile_steps' ends at step {}, train.steps is {}", range.last, *steps);
    } catch (const Error& error) {
      blame("run.profile_steps", error.what(),
            "give the first and the last step, as in profile_steps = \"10-12\"");
    }
  }

  void check_validations() {
    const bool needs_summaries = config_.checkpoint.keep_best == KeepBest::kRougeL;
    const bool stops = config_.train.stop_after_validations > 0, validates = config_.train.validate_every > 0;
    if (needs_summaries && config_.generation.validate_examples == 0)
      blame("checkpoint.keep_best", "'checkpoint.keep_best' = \"rougeL\" needs summaries to score",
            "set generation.validate_examples, such as 100");
    else if (needs_summaries && !validates)
      blame("checkpoint.keep_best", "'checkpoint.keep_best' = \"rougeL\" needs validations",
            "set train.validate_every, such as 500");
    if (stops && !validates)
      blame("train.stop_after_validations", "'train.stop_after_validations' needs validations",
            "set train.validate_every, such as 500, or train.stop_after_validations to 0");
    else if (stops && config_.checkpoint.keep_best == KeepBest::kNone)
      blame("train.stop_after_validations",
            "'train.stop_after_validations' needs a metric that can improve, 'checkpoint.keep_best' is "
            "\"none\"",
            "set checkpoint.keep_best to \"loss\" or \"rougeL\", or train.stop_after_validations to 0");
  }

  void check_generation() {
    const GenerationSettings& generation = config_.generation;
    if (generation.do_sample && generation.num_beams > 1)
      return blame("generation.do_sample",
                   fmt::format("'generation.do_sample' draws tokens, 'generation.num_beams' = {} searches "
                               "for the likeliest ones",
                               generation.num_beams),
                   "set generation.num_beams = 1 or generation.do_sample = false");
    check_at_most("generation.min_new_tokens", generation.min_new_tokens, "generation.max_new_tokens",
                  generation.max_new_tokens, "allow more tokens, or ask for fewer");
  }

  ConfigProblems problems_;
  std::vector<ConfigEntry> entries_;
  std::string name_;
  RunConfig config_;
};

}  // namespace

RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides) {
  return parse_run_config(read_text(path), path, overrides);
}

RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           std::span<const std::string> overrides) {
  return ConfigBuilder(toml, name, overrides).build();
}

void check_steps(const ScheduleSection& schedule, int64_t steps, const std::string& what) {
  const int64_t warmup = schedule.warmup_steps;
  if (warmup > steps)
    throw Error(ExitCode::kUsage, fmt::format("schedule.warmup_steps {} exceeds {}", warmup, what),
                "the run would never reach optimizer.learning_rate: warm up for a few percent of the steps");
  const int64_t decay = schedule.kind == ScheduleKind::kWsd ? schedule.decay_steps(steps) : 0;
  if (warmup + decay > steps)
    throw Error(
        ExitCode::kUsage,
        fmt::format("schedule.warmup_steps {} and schedule.decay_ratio {}, which is {} steps, exceed {}",
                    warmup, toml_number(schedule.decay_ratio), decay, what),
        "the rate would fall before it is reached: lower one of the two");
}

std::vector<std::string> ignored_generation_notes(const RunConfig& config) {
  RunConfig counting = config;
  static_cast<GenerationSettings&>(counting.generation) = config.generation.that_count();
  std::vector<std::string> notes;
  for (const ConfigDifference& difference : compare(config, counting)) {
    const bool of_search =
        difference.key == "generation.length_penalty" || difference.key == "generation.early_stopping";
    notes.push_back(fmt::format(
        "{} = {} changes nothing: it is for {}", difference.key, difference.old_value,
        of_search ? "beams, and generation.num_beams is 1" : "sampling, and generation.do_sample is false"));
  }
  return notes;
}

RunConfig with_changes(const RunConfig& config, const std::vector<ConfigDifference>& changes) {
  if (changes.empty()) return config;
  std::map<std::string, std::string> newest;
  for (const ConfigDifference& change : changes) newest[change.key] = change.new_value;
  std::vector<std::string> overrides;
  for (const auto& [key, value] : newest)
    if (!value.empty()) overrides.push_back(key + "=" + value);
  return parse_run_config(to_toml(config), "changed config", overrides);
}

bool is_overridden(std::string_view path, std::span<const std::string> overrides) {
  ConfigProblems none;  // load_run_config has reported these problems
  return std::ranges::any_of(read_config_entries("", "", overrides, none),
                             [&](const ConfigEntry& entry) { return entry.key->path() == path; });
}

StepRange parse_step_range(std::string_view text) {
  if (text.empty()) return {};
  const size_t dash = text.find('-');
  const auto first = parse_whole_number(text.substr(0, dash));
  const auto last = parse_whole_number(text.substr(dash == std::string_view::npos ? text.size() : dash + 1));
  if (!first || !last || *first < 1 || *last < *first)
    fail(ExitCode::kUsage,
         "'run.profile_steps' must be first-last, as in \"10-12\", counted from 1, got \"{}\"", text);
  return {*first, *last};
}

}  // namespace ripstop
