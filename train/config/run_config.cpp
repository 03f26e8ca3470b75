// Makes a checked config from entries: presets, types, ranges, and rules between several keys.
#include "train/config/run_config.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "data/files/whole_file.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"
#include "train/config/config_entries.h"
#include "train/config/config_problems.h"
#include "train/config/config_values.h"
#include "train/config/nearest_name.h"
#include "train/config/step_range.h"
#include "train/config/unsupported_keys.h"

namespace ripstop {
namespace {

// Far more than read_config_entries accepts, so that it refuses longer files; still an end for /dev/zero.
constexpr int64_t kMostBytesRead = int64_t{64} << 20;

// What to give instead of a directory: the config of a run, or the one that lies there.
std::string config_inside(const std::filesystem::path& directory) {
  std::error_code error;
  if (std::filesystem::is_regular_file(directory / "config.toml", error))
    return fmt::format("give {}", shell_word((directory / "config.toml").string()));
  for (const std::string& name : names_in(directory))
    if (name.ends_with(".toml"))
      return fmt::format("give a file in it, such as {}", shell_word((directory / name).string()));
  return "give a file, as in ripstop train CONFIG.toml";
}

// The hint of a config that is not there.
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

// Builds a config from its entries: assigns the values, fills in defaults, checks the rules that span several
// keys. What the ranks, the data set and the device decide is left to resolve_run (train/plan).
class ConfigBuilder {
 public:
  ConfigBuilder(std::string_view toml, const std::string& name, std::span<const std::string> overrides)
      : entries_(read_config_entries(toml, name, overrides, problems_)), name_(name) {}

  RunConfig build() {
    take_preset();
    // Assign before looking for missing keys: a required key of a wrong type is given, but wrong.
    assign_values();
    check_required();
    // The rules between keys need all values.
    refuse_problems();
    if (!given("data.shuffle_seed")) config_.data.shuffle_seed = config_.run.seed;
    collect([&] { complete_model(); });
    collect([&] { check_lora(); });
    collect([&] { check_train(); });
    collect([&] { check_profile_steps(); });
    collect([&] { check_keep_best(); });
    collect([&] { check_stop_after_validations(); });
    collect([&] { check_generation(); });
    refuse_problems();
    return config_;
  }

 private:
  // The entry of a key, or nullptr. A value that equals the default still counts as given.
  const ConfigEntry* given(std::string_view path) const {
    for (const ConfigEntry& entry : entries_)
      if (entry.key->path() == path) return &entry;
    return nullptr;
  }

  // The place to blame: the key's line, or the whole file if the key is absent.
  std::string where(std::string_view path) const {
    const ConfigEntry* entry = given(path);
    return entry != nullptr ? entry->where : name_;
  }

  // Take the preset's sizes first. Then a size beside the preset wins, also if it comes before it in the
  // file.
  void take_preset() {
    const ConfigEntry* entry = given("model.preset");
    if (entry == nullptr) return;
    const auto* word = std::get_if<std::string>(&entry->value);
    if (word == nullptr) return;  // assign_values refuses it
    if (const ModelPreset* preset = find_model_preset(*word); preset != nullptr) {
      static_cast<ModelConfig&>(config_.model) = preset->config;
      return;
    }
    std::string names;
    for (const ModelPreset& each : model_presets())
      names += (names.empty() ? "" : ", ") + std::string(each.name);
    problems_.add(entry->line, fmt::format("{}: unknown model.preset \"{}\"", entry->where, *word),
                  [=] { return "the presets are " + names; });
  }

  void assign_values() {
    for (const ConfigEntry& entry : entries_) collect([&] { assign_value(entry, config_); });
  }

  // A required text must not be empty either: an empty path would mean the current directory.
  void check_required() {
    for (const ConfigKey& key : config_keys()) {
      if (key.presence != Presence::kRequired) continue;
      const ConfigEntry* entry = given(key.path());
      if (entry == nullptr && is_hinted_at(key)) continue;
      if (entry == nullptr)
        problems_.add(0, fmt::format("{}: '{}' is required", name_, key.path()), [&key] {
          return fmt::format("{} = {} under [{}]", key.name, expected_type(key), key.section);
        });
      else if (entry->value == ConfigValue(""))
        problems_.add(entry->line, fmt::format("{}: '{}' must not be empty", entry->where, key.path()),
                      [&key] { return fmt::format("give a path: {} = \"runs/first\"", key.name); });
    }
  }

  // Whether an unknown name seems to be this key in another spelling: one problem, not two.
  bool is_hinted_at(const ConfigKey& key) const {
    return problems_.any_hint_has(fmt::format("'{}'", key.path())) ||
           problems_.any_hint_has(fmt::format("did you mean [{}]", key.section));
  }

  // Adds the problem that `check` throws, if any.
  template <class Check>
  void collect(Check check) {
    try {
      check();
    } catch (const Error& error) {
      problems_.add(
          blamed_line(error.what()), error.what(), [hint = error.hint()] { return hint; }, error.code());
    }
  }

  // The line at which `text` begins, as "x.toml:12: ..."; 0 if it begins with the file or the command line.
  int64_t blamed_line(const std::string& text) const {
    for (const ConfigEntry& entry : entries_)
      if (entry.line > 0 && text.starts_with(entry.where + ": ")) return entry.line;
    return 0;
  }

  // Throws if there are problems. Then people have to edit the config anyway: they learn of the values that
  // this version does not do, too.
  void refuse_problems() {
    if (!problems_.any()) return;
    for (const ConfigEntry& entry : entries_)
      if (is_unsupported(*entry.key, config_))
        problems_.add(entry.line,
                      fmt::format("{}: not in this version of ripstop: {} = {}", entry.where,
                                  entry.key->path(), value_as_toml(*entry.key, config_)),
                      [&entry] { return "use instead: " + instead_of_unsupported(*entry.key); });
    problems_.refuse();
  }

  // Fills in the sizes that follow from others.
  void complete_model() {
    ModelSection& model = config_.model;
    if (!model.pretrained.empty()) {
      for (const ConfigEntry& entry : entries_)
        if (entry.key->section == "model" && entry.key->name != "pretrained")
          refuse(entry.where, fmt::format("'{}' cannot stand beside 'model.pretrained'", entry.key->path()),
                 "the sizes come from its config.json");
      return;
    }
    const ConfigEntry* const pretrained = given("model.pretrained");
    // Given and empty: a config that a run has written has it so, beside sizes.
    if (pretrained != nullptr && model.preset.empty() && !given("model.hidden_size"))
      refuse(pretrained->where, "'model.pretrained' is empty",
             "give the directory of a model; or leave the key out (is a shell variable not set?) and give "
             "model.preset, which begins with random weights");
    if (model.preset.empty() && !given("model.hidden_size"))
      refuse(name_, "[model] needs a preset or sizes", "as in preset = \"15m\"");
    for (const char* path : {"model.hidden_size", "model.intermediate_size", "model.num_hidden_layers",
                             "model.num_attention_heads"})
      if (model.preset.empty() && !given(path))
        refuse(name_, fmt::format("'{}' is required if there is no preset", path),
               "give it, or model.preset, as in preset = \"15m\"");
    if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
    if (model.max_position_embeddings == 0) model.max_position_embeddings = config_.data.sequence_length;
    check_model_sizes();
    check_heads_over_tensor();
  }

  void check_model_sizes() const {
    const ModelSection& model = config_.model;
    ModelConfig sizes = model;
    if (sizes.vocab_size == 0) sizes.vocab_size = 1;  // the data set's; resolve_run checks it
    try {
      validate(sizes);
    } catch (const Error& error) {
      refuse_sizes(error.what());
    }
    if (config_.data.sequence_length > model.max_position_embeddings)
      refuse(where("data.sequence_length"),
             fmt::format("data.sequence_length {} exceeds model.max_position_embeddings {}",
                         config_.data.sequence_length, model.max_position_embeddings),
             fmt::format("{}: shorten the sequences, or raise it if training begins from random weights",
                         origin(*find_config_key("model", "max_position_embeddings"))));
  }

  // Refuses sizes with the message of validate(), which names one or two of them by their keys. One may be
  // the preset's and one the file's, so the hint says where each comes from.
  [[noreturn]] void refuse_sizes(const std::string& what) const {
    std::string place, origins, absent;
    for (const ConfigKey& key : config_keys()) {
      if (key.section != "model" || !has_word(what, key.name)) continue;
      const ConfigEntry* entry = given(key.path());
      if (entry != nullptr && place.empty()) place = entry->where;
      if (entry == nullptr) absent += fmt::format("{}{}", absent.empty() ? "" : " and ", key.path());
      origins += (origins.empty() ? "" : ", ") + origin(key);
    }
    refuse(place.empty() ? where("model.preset") : place, "model." + what,
           absent.empty() ? origins : fmt::format("{}: give {} too", origins, absent));
  }

  // "num_key_value_heads = 32 is the preset's", "hidden_size = 96 is from x.toml:7".
  std::string origin(const ConfigKey& key) const {
    RunConfig copy = config_;
    std::string from =
        config_.model.preset.empty() ? "the default" : fmt::format("the preset's ({})", config_.model.preset);
    if (const ConfigEntry* entry = given(key.path()); entry != nullptr)
      from = entry->line > 0 ? "from " + entry->where : "from the command line";
    return fmt::format("{} = {} is {}", key.name, value_as_toml(key, copy), from);
  }

  // Whether `text` holds `word` between blanks, or before a comma.
  static bool has_word(const std::string& text, std::string_view word) {
    return (" " + text + " ").find(fmt::format(" {} ", word)) != std::string::npos ||
           (" " + text).find(fmt::format(" {},", word)) != std::string::npos;
  }

  // The rule belongs to the model, but the mistake is nearly always in mesh.tensor: name that place.
  void check_heads_over_tensor() const {
    try {
      check_tensor_axis(config_.model, *config_.mesh.tensor);
    } catch (const Error& error) {
      throw Error(error.code(), where("mesh.tensor") + ": " + error.what(), error.hint());
    }
  }

  // The rank is compared with the matrices when the model is known.
  void check_lora() const {
    for (const ConfigEntry& entry : entries_)
      if (entry.key->section == "lora" && entry.key->name != "rank" && !config_.lora.any())
        refuse(entry.where, fmt::format("'{}' is of adapters, and there are none", entry.key->path()),
               "set lora.rank, such as 16, or leave [lora] out");
    if (!config_.lora.any()) return;
    if (config_.model.pretrained.empty())
      refuse(where("lora.rank"), "'lora.rank' trains adapters of a model, and 'model.pretrained' has none",
             "give model.pretrained the model that they adapt, or set lora.rank to 0");
    if (!given("lora.alpha"))
      refuse(where("lora.rank"), "'lora.alpha' is required with a rank",
             fmt::format("alpha = {} under [lora]: twice the rank is usual", 2 * config_.lora.rank));
  }

  void check_train() const {
    const TrainSection& train = config_.train;
    if (train.steps && train.epochs)
      refuse(where("train.epochs"), "'train.steps' and 'train.epochs' are both given", "keep one of them");
    if (!train.steps && !train.epochs)
      refuse(name_, "'train.steps' or 'train.epochs' is required", "steps = 1000 under [train]");
    if (train.steps && config_.schedule.warmup_steps > *train.steps)
      refuse(where("schedule.warmup_steps"),
             fmt::format("schedule.warmup_steps {} exceeds train.steps {}", config_.schedule.warmup_steps,
                         *train.steps),
             "the run would never reach optimizer.learning_rate: warm up for a few percent of the steps");
    if (train.micro_batch_sequences && *train.micro_batch_sequences > train.global_batch_sequences)
      refuse(where("train.micro_batch_sequences"),
             fmt::format("train.micro_batch_sequences {} exceeds train.global_batch_sequences {}",
                         *train.micro_batch_sequences, train.global_batch_sequences),
             "leave it out: \"auto\" takes the largest that fits");
  }

  // Before the run starts: its steps may be hours away.
  void check_profile_steps() const {
    const std::string at = where("run.profile_steps");
    const std::optional<int64_t>& steps = config_.train.steps;
    try {
      const StepRange range = parse_step_range(config_.run.profile_steps);
      if (steps && range.last > *steps)
        fail(ExitCode::kUsage, "'run.profile_steps' ends at step {}, train.steps is {}", range.last, *steps);
    } catch (const Error& error) {
      refuse(at, error.what(), "give the first and the last step, as in profile_steps = \"10-12\"");
    }
  }

  void check_keep_best() const {
    if (config_.checkpoint.keep_best != KeepBest::kRougeL) return;
    if (config_.generation.validate_examples == 0)
      refuse(where("checkpoint.keep_best"), "'checkpoint.keep_best' = \"rougeL\" needs summaries to score",
             "set generation.validate_examples, such as 100");
    if (config_.train.validate_every == 0)
      refuse(where("checkpoint.keep_best"), "'checkpoint.keep_best' = \"rougeL\" needs validations",
             "set train.validate_every, such as 500");
  }

  void check_stop_after_validations() const {
    const TrainSection& train = config_.train;
    if (train.stop_after_validations == 0) return;
    if (train.validate_every == 0)
      refuse(where("train.stop_after_validations"), "'train.stop_after_validations' needs validations",
             "set train.validate_every, such as 500, or train.stop_after_validations to 0");
    if (config_.checkpoint.keep_best == KeepBest::kNone)
      refuse(where("train.stop_after_validations"),
             "'train.stop_after_validations' needs a metric that can improve, 'checkpoint.keep_best' is "
             "\"none\"",
             "set checkpoint.keep_best to \"loss\" or \"rougeL\", or train.stop_after_validations to 0");
  }

  void check_generation() const {
    const GenerationSettings& generation = config_.generation;
    if (generation.do_sample && generation.num_beams > 1)
      refuse(where("generation.do_sample"),
             fmt::format("'generation.do_sample' draws tokens, 'generation.num_beams' = {} searches for the "
                         "likeliest ones",
                         generation.num_beams),
             "set generation.num_beams = 1 or generation.do_sample = false");
    if (generation.min_new_tokens > generation.max_new_tokens)
      refuse(where("generation.min_new_tokens"),
             fmt::format("generation.min_new_tokens {} exceeds generation.max_new_tokens {}",
                         generation.min_new_tokens, generation.max_new_tokens),
             "allow more tokens, or ask for fewer");
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

std::string place_of_key(const ConfigKey& key, const std::string& path,
                         std::span<const std::string> overrides) {
  ConfigProblems none;  // the config was read before
  // A pipe has given what it had: to read it again would wait for ever.
  std::error_code ignored;
  const std::string text = std::filesystem::is_regular_file(path, ignored) ? read_text(path) : "";
  for (const ConfigEntry& entry : read_config_entries(text, path, overrides, none))
    if (entry.key == &key) return entry.where;
  return "";
}

}  // namespace ripstop
