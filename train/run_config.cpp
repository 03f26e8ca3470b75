#include "train/run_config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <vector>

#include "model/error.h"
#include "train/run_config_keys.h"

namespace ripstop {
namespace {

constexpr size_t kLargestFileBytes = size_t{1} << 20;
constexpr size_t kLongestLineBytes = 4096;  // bounds how deep dotted keys can nest as well
constexpr size_t kLongestStringBytes = 4096;
const std::string kCommandLine = "command line";

// One key's value and where it was given.
struct Entry {
  const ConfigKey* key = nullptr;
  toml::table holder;  // owns the value, under "value"
  std::string where;   // "configs/x.toml:12", or "command line"
  uint32_t line = 0;
  bool from_command_line = false;

  const toml::node& value() const { return *holder.get("value"); }
};

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = {}) {
  throw Error(ExitCode::kUsage, where + ": " + what, hint);
}

std::string read_text(const std::string& path) {
  if (path.empty()) throw Error(ExitCode::kUsage, "config file is required", "ripstop train CONFIG.toml");
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    fail(ExitCode::kUsage, "config {} is a directory, expected a TOML file", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ExitCode::kUsage, "cannot open config {}: {}", path, std::strerror(errno));
  std::string text(kLargestFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail(ExitCode::kUsage, "cannot read config {}: {}", path, std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

void check_text(std::string_view text, const std::string& name) {
  if (text.size() > kLargestFileBytes)
    fail(ExitCode::kUsage, "{}: larger than {} bytes, which no config is", name, kLargestFileBytes);
  size_t line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end - begin > kLongestLineBytes)
      fail(ExitCode::kUsage, "{}:{}: line of {} bytes, at most {} are accepted", name, line, end - begin,
           kLongestLineBytes);
    begin = end + 1;
  }
}

// The first line that assigns `key` in the section in which line `last_line` stands; 0 when not found.
size_t first_line_of(std::string_view text, const std::string& key, size_t last_line) {
  size_t found = 0;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (size_t number = 1; number < last_line && std::getline(lines, line); ++number) {
    const size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    if (line[begin] == '[') found = 0;
    if (line.compare(begin, key.size(), key) != 0) continue;
    const size_t after = line.find_first_not_of(" \t", begin + key.size());
    if (found == 0 && after != std::string::npos && line[after] == '=') found = number;
  }
  return found;
}

[[noreturn]] void refuse_syntax(const toml::parse_error& error, std::string_view text,
                                const std::string& name) {
  const std::string description(error.description());
  const uint32_t line = error.source().begin.line;
  const size_t quote = description.find('\'');
  if (description.find("cannot redefine") != std::string::npos && quote != std::string::npos) {
    const std::string key = description.substr(quote + 1, description.rfind('\'') - quote - 1);
    const size_t first = first_line_of(text, key, line);
    const std::string lines = first != 0 ? fmt::format(" (lines {} and {})", first, line) : "";
    refuse(fmt::format("{}:{}", name, line), fmt::format("'{}' is given twice{}", key, lines));
  }
  refuse(fmt::format("{}:{}:{}", name, line, error.source().begin.column), description);
}

Entry make_entry(const ConfigKey& key, const toml::node& value, std::string where, uint32_t line) {
  Entry entry;
  entry.key = &key;
  value.visit([&](const auto& concrete) { entry.holder.insert("value", concrete); });
  entry.where = std::move(where);
  entry.line = line;
  return entry;
}

// Something the file must not hold, kept until the first one in the file's order is known.
struct Problem {
  uint32_t line;
  std::string what;
  std::string hint;
};

bool is_section(std::string_view name) {
  const auto sections = config_sections();
  return std::find(sections.begin(), sections.end(), name) != sections.end();
}

void read_section(std::string_view section, const toml::table& table, const std::string& name,
                  std::vector<Entry>& entries, std::vector<Problem>& problems) {
  for (const auto& [key_node, value] : table) {
    const std::string_view key_name = key_node.str();
    const uint32_t line = value.source().begin.line;
    const ConfigKey* key = find_config_key(section, key_name);
    if (key == nullptr) {
      problems.push_back({line, fmt::format("unknown key '{}.{}'", section, key_name),
                          suggest_config_key(section, key_name)});
      continue;
    }
    entries.push_back(make_entry(*key, value, fmt::format("{}:{}", name, line), line));
  }
}

std::vector<Entry> read_file_entries(std::string_view text, const std::string& name) {
  toml::table document;
  try {
    document = toml::parse(text, std::string_view(name));
  } catch (const toml::parse_error& error) {
    refuse_syntax(error, text, name);
  }
  std::vector<Entry> entries;
  std::vector<Problem> problems;
  for (const auto& [section_node, value] : document) {
    const std::string_view section = section_node.str();
    const uint32_t line = value.source().begin.line;
    const toml::table* table = value.as_table();
    if (table != nullptr && is_section(section)) {
      read_section(section, *table, name, entries, problems);
    } else if (table != nullptr) {
      problems.push_back(
          {line, fmt::format("unknown section [{}]", section), suggest_config_section(section)});
    } else if (is_section(section)) {
      problems.push_back(
          {line, fmt::format("'{}' is a section, not a key", section), fmt::format("[{}]", section)});
    } else {
      problems.push_back({line, fmt::format("unknown key '{}' outside a section", section),
                          suggest_config_key("", section)});
    }
  }
  if (!problems.empty()) {
    const Problem& first = *std::min_element(
        problems.begin(), problems.end(), [](const Problem& a, const Problem& b) { return a.line < b.line; });
    refuse(fmt::format("{}:{}", name, first.line), first.what, first.hint);
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.line < b.line; });
  return entries;
}

// Words need no quotes on a command line; numbers, booleans and arrays are TOML.
toml::table parse_override_value(const ConfigKey& key, const std::string& text) {
  RunConfig any;
  const Field field = key.field(any);
  const bool is_word =
      std::holds_alternative<std::string*>(field) || std::holds_alternative<ChoiceField>(field);
  const bool is_quoted = !text.empty() && (text.front() == '"' || text.front() == '\'');
  if (!is_word || is_quoted) {
    try {
      toml::table parsed = toml::parse("value = " + text);
      if (parsed.size() == 1 && parsed.contains("value")) return parsed;
    } catch (const toml::parse_error&) {
      // A bare word such as auto; or nonsense, which the check of the type refuses with the key's name.
    }
  }
  toml::table holder;
  holder.insert("value", text);
  return holder;
}

Entry read_override(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || text.size() > kLongestLineBytes)
    refuse(kCommandLine, fmt::format("'{}' is not section.key=value", text.substr(0, 80)),
           "as in train.steps=100");
  std::string path = text.substr(0, equals);
  path.erase(0, path.find_first_not_of('-') == std::string::npos ? 0 : path.find_first_not_of('-'));
  const size_t dot = path.find('.');
  if (dot == std::string::npos)
    refuse(kCommandLine, fmt::format("unknown key '{}'", path), suggest_config_key("", path));
  const std::string section = path.substr(0, dot);
  const std::string name = path.substr(dot + 1);
  const ConfigKey* key = find_config_key(section, name);
  if (key == nullptr)
    refuse(kCommandLine, fmt::format("unknown key '{}'", path), suggest_config_key(section, name));
  Entry entry;
  entry.key = key;
  entry.holder = parse_override_value(*key, text.substr(equals + 1));
  entry.where = kCommandLine;
  entry.from_command_line = true;
  return entry;
}

// Keys of the file that an override pushes aside, because only one of the two can hold.
bool displaces(const Entry& override_entry, const Entry& entry) {
  const std::string by = override_entry.key->path();
  const std::string of = entry.key->path();
  if (by == of) return true;
  if (by == "train.steps") return of == "train.epochs";
  if (by == "train.epochs") return of == "train.steps";
  if (by == "model.pretrained") return entry.key->section == "model";
  if (by == "model.preset") return of == "model.pretrained";
  return false;
}

std::vector<Entry> with_overrides(std::vector<Entry> entries, std::span<const std::string> overrides) {
  std::vector<Entry> given;
  for (const std::string& text : overrides) {
    Entry entry = read_override(text);
    for (const Entry& earlier : given)
      if (earlier.key == entry.key)
        refuse(kCommandLine, fmt::format("'{}' is given twice", entry.key->path()));
    given.push_back(std::move(entry));
  }
  for (const Entry& entry : given)
    entries.erase(std::remove_if(entries.begin(), entries.end(),
                                 [&](const Entry& other) { return displaces(entry, other); }),
                  entries.end());
  std::move(given.begin(), given.end(), std::back_inserter(entries));
  return entries;
}

std::string shown(const toml::node& value) {
  if (value.is_table()) return "a table";
  if (value.is_array() && value.as_array()->size() > 4) return "an array";
  std::ostringstream text;
  if (const auto string = value.value_exact<std::string>())
    text << toml_string(*string);
  else
    value.visit([&](const auto& concrete) { text << concrete; });
  const std::string result = text.str();
  return result.size() > 80 ? result.substr(0, 77) + "..." : result;
}

// Writes one entry's value into its field, or refuses it.
class Assigner {
 public:
  explicit Assigner(const Entry& entry) : entry_(entry), value_(entry.value()) {}

  void operator()(bool* field) const {
    const auto value = value_.value_exact<bool>();
    if (!value) refuse_type();
    *field = *value;
  }
  void operator()(int64_t* field) const {
    const auto value = value_.value_exact<int64_t>();
    if (!value) refuse_type();
    check_range(static_cast<double>(*value));
    *field = *value;
  }
  void operator()(double* field) const { *field = number(value_); }
  void operator()(std::string* field) const {
    const auto value = value_.value_exact<std::string>();
    if (!value) refuse_type();
    if (value->size() > kLongestStringBytes)
      refuse(entry_.where, fmt::format("'{}' is longer than {} bytes", path(), kLongestStringBytes));
    for (const char c : *value)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        refuse(entry_.where, fmt::format("'{}' holds a control character", path()));
    *field = *value;
  }
  void operator()(std::array<double, 2>* field) const {
    const toml::array* values = value_.as_array();
    if (values == nullptr || values->size() != field->size()) refuse_type();
    for (size_t i = 0; i < field->size(); ++i) (*field)[i] = number(*values->get(i));
  }
  void operator()(ChoiceField field) const {
    const auto value = value_.value_exact<std::string>();
    const auto word = value ? std::find(field.words.begin(), field.words.end(), *value) : field.words.end();
    if (word == field.words.end()) refuse_type();
    field.set(field.value, static_cast<int>(word - field.words.begin()));
  }
  template <class T>
  void operator()(std::optional<T>* field) const {
    if (entry_.key->none_is_auto && value_.value_exact<std::string>() == "auto") {
      field->reset();
      return;
    }
    T value{};
    (*this)(&value);
    *field = value;
  }

 private:
  std::string path() const { return entry_.key->path(); }

  double number(const toml::node& node) const {
    if (!node.is_number()) refuse_type();
    const double value = *node.value<double>();
    check_range(value);
    return value;
  }

  void check_range(double value) const {
    const ValueRange& range = entry_.key->range;
    const bool low = range.above_least ? !(value > range.least) : !(value >= range.least);
    const bool high = range.below_most ? !(value < range.most) : !(value <= range.most);
    if (std::isfinite(value) && !low && !high) return;
    refuse(entry_.where, fmt::format("'{}' must be {} {} and {} {}, got {}", path(),
                                     range.above_least ? "above" : "at least", range.least,
                                     range.below_most ? "below" : "at most", range.most, shown(value_)));
  }

  [[noreturn]] void refuse_type() const {
    refuse(entry_.where,
           fmt::format("'{}' must be {}, got {}", path(), expected_type(*entry_.key), shown(value_)));
  }

  const Entry& entry_;
  const toml::node& value_;
};

// The entries of one config, and the rules that span several keys.
class Resolver {
 public:
  Resolver(std::vector<Entry> entries, std::string name)
      : entries_(std::move(entries)), name_(std::move(name)) {}

  RunConfig resolve() {
    take_preset();
    for (const Entry& entry : entries_) std::visit(Assigner(entry), entry.key->field(config_));
    check_required();
    if (!given("data.shuffle_seed")) config_.data.shuffle_seed = config_.run.seed;
    resolve_model();
    check_train();
    check_profile_steps();
    if (config_.checkpoint.keep_best == KeepBest::kRougeL && config_.generation.validate_examples == 0)
      refuse(where("checkpoint.keep_best"), "'checkpoint.keep_best' = \"rougeL\" needs summaries to score",
             "set generation.validate_examples, such as 100");
    return config_;
  }

 private:
  const Entry* given(std::string_view path) const {
    for (const Entry& entry : entries_)
      if (entry.key->path() == path) return &entry;
    return nullptr;
  }

  std::string where(std::string_view path) const {
    const Entry* entry = given(path);
    return entry != nullptr ? entry->where : name_;
  }

  // The preset's sizes come first, so that a size beside it overrides, wherever it stands in the file.
  void take_preset() {
    const Entry* entry = given("model.preset");
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

  void check_required() const {
    for (const ConfigKey& key : config_keys()) {
      if (key.presence != Presence::kRequired) continue;
      const Entry* entry = given(key.path());
      if (entry == nullptr)
        refuse(name_, fmt::format("'{}' is required", key.path()),
               fmt::format("{} = {} under [{}]", key.name, expected_type(key), key.section));
      if (entry->value().value_exact<std::string>() == "")
        refuse(entry->where, fmt::format("'{}' must not be empty", key.path()));
    }
  }

  void resolve_model() {
    ModelSection& model = config_.model;
    if (!model.pretrained.empty()) {
      for (const Entry& entry : entries_)
        if (entry.key->section == "model" && entry.key->name != "pretrained")
          refuse(entry.where, fmt::format("'{}' cannot stand beside 'model.pretrained'", entry.key->path()),
                 "the sizes come from its config.json");
      return;
    }
    if (model.preset.empty() && !given("model.hidden_size"))
      refuse(name_, "[model] says neither pretrained, preset nor sizes", "as in preset = \"15m\"");
    for (const char* path : {"model.hidden_size", "model.intermediate_size", "model.num_hidden_layers",
                             "model.num_attention_heads"})
      if (model.preset.empty() && !given(path))
        refuse(name_, fmt::format("'{}' is required where there is no preset", path));
    if (model.num_key_value_heads == 0) model.num_key_value_heads = model.num_attention_heads;
    if (model.max_position_embeddings == 0) model.max_position_embeddings = config_.data.sequence_length;
    check_model_sizes();
    check_heads_over_tensor();
  }

  void check_model_sizes() const {
    const ModelSection& model = config_.model;
    ModelConfig sizes = model;
    if (sizes.vocab_size == 0) sizes.vocab_size = 1;  // the data set's, not known yet
    try {
      validate(sizes);
    } catch (const Error& error) {
      const std::string text = error.what();
      refuse(where("model." + text.substr(0, text.find(' '))), "model." + text);
    }
    if (config_.data.sequence_length > model.max_position_embeddings)
      refuse(where("data.sequence_length"),
             fmt::format("data.sequence_length {} exceeds model.max_position_embeddings {}",
                         config_.data.sequence_length, model.max_position_embeddings),
             "shorten the sequences, or raise it for a model trained from scratch");
  }

  void check_heads_over_tensor() const {
    const int64_t heads = config_.model.num_attention_heads;
    const int64_t key_value_heads = config_.model.num_key_value_heads;
    const int64_t tensor = config_.mesh.tensor;
    if (heads % tensor == 0 && key_value_heads % tensor == 0) return;
    std::string fitting;
    const int64_t largest = std::gcd(heads, key_value_heads);
    for (int64_t size = 1; size <= largest; ++size)
      if (largest % size == 0) fitting += (fitting.empty() ? "" : ", ") + std::to_string(size);
    throw Error(ExitCode::kResources,
                fmt::format("{}: mesh.tensor {} does not divide {} query and {} key-value heads",
                            where("mesh.tensor"), tensor, heads, key_value_heads),
                "sizes that work: " + fitting);
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

  void check_profile_steps() const {
    const std::string& text = config_.run.profile_steps;
    if (text.empty()) return;
    std::istringstream stream(text);
    int64_t first = 0;
    int64_t last = 0;
    char dash = 0;
    const bool digits = text.find_first_not_of("0123456789-") == std::string::npos;
    if (!digits || !(stream >> first >> dash >> last) || !stream.eof() || dash != '-' || first < 1 ||
        last < first)
      refuse(where("run.profile_steps"),
             fmt::format("'run.profile_steps' must be first-last, as in \"10-12\", got \"{}\"", text));
  }

  std::vector<Entry> entries_;
  std::string name_;
  RunConfig config_;
};

}  // namespace

RunConfig load_run_config(const std::string& path, std::span<const std::string> overrides) {
  return parse_run_config(read_text(path), path, overrides);
}

RunConfig parse_run_config(std::string_view toml, const std::string& name,
                           std::span<const std::string> overrides) {
  check_text(toml, name);
  return Resolver(with_overrides(read_file_entries(toml, name), overrides), name).resolve();
}

}  // namespace ripstop
