// Makes a checked config from entries: presets, types, ranges, and rules between several keys.
#include "train/config/run_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "data/whole_file.h"
#include "model/core/error.h"
#include "train/config/config_entries.h"
#include "train/config/step_range.h"

namespace ripstop {
namespace {

// Far more than read_config_entries accepts, so that it refuses longer files; still an end for /dev/zero.
constexpr int64_t kMostBytesRead = int64_t{64} << 20;
constexpr size_t kLongestStringBytes = 4096;

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::kUsage, where + ": " + what, hint);
}

std::string read_text(const std::string& path) {
  if (path.empty()) throw Error(ExitCode::kUsage, "config file is required", "ripstop train CONFIG.toml");
  std::error_code error;
  // ifstream opens a directory without complaint and then reads nothing.
  if (std::filesystem::is_directory(path, error))
    fail(ExitCode::kUsage, "config {} is a directory, expected a TOML file", path);
  return read_whole_file(path, kMostBytesRead, ExitCode::kUsage);
}

// Writes one entry's value into its field. Refuses a value of a wrong type or outside its range.
class Assigner {
 public:
  explicit Assigner(const ConfigEntry& entry) : entry_(entry) {}

  void operator()(bool* field) const { *field = value_as<bool>(); }
  void operator()(int64_t* field) const {
    *field = value_as<int64_t>();
    check_range(static_cast<double>(*field));
  }
  void operator()(double* field) const {
    // People write 3 and mean 3.0.
    const auto* integer = std::get_if<int64_t>(&entry_.value);
    *field = integer != nullptr ? static_cast<double>(*integer) : value_as<double>();
    check_range(*field);
  }
  void operator()(std::string* field) const {
    const std::string& value = value_as<std::string>();
    if (value.size() > kLongestStringBytes)
      refuse(entry_.where, fmt::format("'{}' is longer than {} bytes", path(), kLongestStringBytes));
    // Paths appear in messages and logs of one line, and NUL would cut a path.
    for (const char c : value)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        refuse(entry_.where, fmt::format("'{}' holds a control character", path()));
    *field = value;
  }
  void operator()(std::array<double, 2>* field) const {
    const std::vector<double>& values = value_as<std::vector<double>>();
    if (values.size() != field->size()) refuse_type();
    for (const double value : values) check_range(value);
    std::copy(values.begin(), values.end(), field->begin());
  }
  void operator()(ChoiceField field) const {
    const auto word = std::find(field.words.begin(), field.words.end(), value_as<std::string>());
    if (word == field.words.end()) refuse_type();
    field.set(field.value, static_cast<int>(word - field.words.begin()));
  }
  template <class T>
  void operator()(std::optional<T>* field) const {
    if (entry_.key->none_is_auto && entry_.value == ConfigValue("auto")) {
      field->reset();
      return;
    }
    T value{};
    (*this)(&value);
    *field = value;
  }

 private:
  std::string path() const { return entry_.key->path(); }

  // The value in the type that it has in the file. Nothing is converted.
  template <class T>
  const T& value_as() const {
    const T* value = std::get_if<T>(&entry_.value);
    if (value == nullptr) refuse_type();
    return *value;
  }

  void check_range(double value) const {
    const ValueRange& range = entry_.key->range;
    // Written so that NaN, which compares false with everything, is outside of every range.
    const bool low = range.above_least ? !(value > range.least) : !(value >= range.least);
    const bool high = range.below_most ? !(value < range.most) : !(value <= range.most);
    if (std::isfinite(value) && !low && !high) return;
    refuse(entry_.where, fmt::format("'{}' must be {} {} and {} {}, got {}", path(),
                                     range.above_least ? "above" : "at least", range.least,
                                     range.below_most ? "below" : "at most", range.most, entry_.shown));
  }

  [[noreturn]] void refuse_type() const {
    refuse(entry_.where,
           fmt::format("'{}' must be {}, got {}", path(), expected_type(*entry_.key), entry_.shown));
  }

  const ConfigEntry& entry_;
};

// Builds a config from its entries: assigns the values, fills in defaults, checks the rules that span several
// keys. What the ranks, the data set and the device decide is left to resolve_run (train/plan).
class ConfigBuilder {
 public:
  ConfigBuilder(std::vector<ConfigEntry> entries, std::string name)
      : entries_(std::move(entries)), name_(std::move(name)) {}

  RunConfig build() {
    take_preset();
    // Assign before looking for missing keys: a required key of a wrong type is given, but wrong.
    for (const ConfigEntry& entry : entries_) std::visit(Assigner(entry), entry.key->field(config_));
    check_required();
    if (!given("data.shuffle_seed")) config_.data.shuffle_seed = config_.run.seed;
    complete_model();
    check_train();
    check_profile_steps();
    check_keep_best();
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
    std::string word;
    Assigner{*entry}(&word);
    const ModelPreset* preset = find_model_preset(word);
    if (preset == nullptr) {
      std::string names;
      for (const ModelPreset& each : model_presets())
        names += (names.empty() ? "" : ", ") + std::string(each.name);
      refuse(entry->where, fmt::format("unknown model.preset \"{}\"", word), "the presets are " + names);
    }
    static_cast<ModelConfig&>(config_.model) = preset->config;
  }

  // A required text must not be empty either: an empty path would mean the current directory.
  void check_required() const {
    for (const ConfigKey& key : config_keys()) {
      if (key.presence != Presence::kRequired) continue;
      const ConfigEntry* entry = given(key.path());
      if (entry == nullptr)
        refuse(name_, fmt::format("'{}' is required", key.path()),
               fmt::format("{} = {} under [{}]", key.name, expected_type(key), key.section));
      if (entry->value == ConfigValue(""))
        refuse(entry->where, fmt::format("'{}' must not be empty", key.path()));
    }
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
    if (model.preset.empty() && !given("model.hidden_size"))
      refuse(name_, "[model] needs a preset or sizes", "as in preset = \"15m\"");
    for (const char* path : {"model.hidden_size", "model.intermediate_size", "model.num_hidden_layers",
                             "model.num_attention_heads"})
      if (model.preset.empty() && !given(path))
        refuse(name_, fmt::format("'{}' is required if there is no preset", path));
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
      // The message of validate() begins with the name of the size.
      const std::string text = error.what();
      refuse(where("model." + text.substr(0, text.find(' '))), "model." + text);
    }
    if (config_.data.sequence_length > model.max_position_embeddings)
      refuse(where("data.sequence_length"),
             fmt::format("data.sequence_length {} exceeds model.max_position_embeddings {}",
                         config_.data.sequence_length, model.max_position_embeddings),
             "shorten the sequences, or raise model.max_position_embeddings if training begins from random "
             "weights");
  }

  // The rule belongs to the model, but the mistake is nearly always in mesh.tensor: name that place.
  void check_heads_over_tensor() const {
    try {
      check_tensor_axis(config_.model, config_.mesh.tensor);
    } catch (const Error& error) {
      throw Error(error.code(), where("mesh.tensor") + ": " + error.what(), error.hint());
    }
  }

  void check_train() const {
    const TrainSection& train = config_.train;
    if (train.steps && train.epochs)
      refuse(where("train.epochs"), "'train.steps' and 'train.epochs' are both given", "keep one of them");
    if (!train.steps && !train.epochs)
      refuse(name_, "'train.steps' or 'train.epochs' is required", "steps = 1000 under [train]");
    if (train.steps && config_.schedule.warmup_steps > *train.steps)
      refuse(where("schedule.warmup_steps"), fmt::format("schedule.warmup_steps {} exceeds train.steps {}",
                                                         config_.schedule.warmup_steps, *train.steps));
    if (train.micro_batch_sequences && *train.micro_batch_sequences > train.global_batch_sequences)
      refuse(where("train.micro_batch_sequences"),
             fmt::format("train.micro_batch_sequences {} exceeds train.global_batch_sequences {}",
                         *train.micro_batch_sequences, train.global_batch_sequences));
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
      refuse(at, error.what());
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
  return ConfigBuilder(read_config_entries(toml, name, overrides), name).build();
}

std::string place_of_key(const ConfigKey& key, const std::string& path,
                         std::span<const std::string> overrides) {
  for (const ConfigEntry& entry : read_config_entries(read_text(path), path, overrides))
    if (entry.key == &key) return entry.where;
  return "";
}

}  // namespace ripstop
