// Values of config keys: assigns, checks and compares them, writes TOML and the table of docs/config.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "data/process/shell_word.h"
#include "data/text/json_struct.h"
#include "data/text/utf8.h"
#include "model/core/error.h"
#include "train/config/config_entries.h"
#include "train/config/config_keys.h"
#include "train/config/run_config.h"

namespace ripstop {
namespace {

constexpr size_t kLongestStringBytes = 4096;

// `path` with the values of environment variables in place of $NAME and ${NAME}, and $ in place of $$.
// nullopt if a variable is unset or empty.
std::optional<std::string> with_variables(const std::string& path) {
  std::string result;
  for (size_t at = 0; at < path.size();) {
    const bool braced = path.compare(at, 2, "${") == 0;
    const size_t begin = at + (braced ? 2 : 1);
    size_t end = begin;
    while (end < path.size() &&
           (std::isalnum(static_cast<unsigned char>(path[end])) != 0 || path[end] == '_'))
      ++end;
    if (path[at] != '$' || end == begin || (braced && path[end] != '}')) {
      result += path[at];
      at += path.compare(at, 2, "$$") == 0 ? 2 : 1;
      continue;
    }
    const char* const value = std::getenv(path.substr(begin, end - begin).c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    result += value;
    at = end + (braced ? 1 : 0);
  }
  return result;
}

// Writes a value into a field. Throws Error(kUsage) for a value that the key does not accept.
class Assigner {
 public:
  explicit Assigner(const ConfigEntry& entry) : entry_(entry) {}

  void operator()(bool* field) const { *field = value_as<bool>(); }
  void operator()(int64_t* field) const {
    *field = value_as<int64_t>();
    check_range(static_cast<double>(*field));
  }
  void operator()(double* field) const {
    // Accepts 3 for 3.0.
    const auto* integer = std::get_if<int64_t>(&entry_.value);
    *field = integer != nullptr ? static_cast<double>(*integer) : value_as<double>();
    check_range(*field);
  }
  void operator()(std::string* field) const { *field = whole_path(value_as<std::string>()); }
  void operator()(std::vector<std::string>* field) const {
    field->clear();
    for (const std::string& value : elements_as<std::string>()) field->push_back(whole_path(value));
  }
  void operator()(std::vector<double>* field) const {
    *field = elements_as<double>();
    for (const double value : *field) check_range(value);
  }
  void operator()(std::array<double, 2>* field) const {
    const std::vector<double>& values = value_as<std::vector<double>>();
    if (values.size() != field->size()) refuse_type();
    for (const double value : values) check_range(value);
    std::copy(values.begin(), values.end(), field->begin());
  }
  void operator()(std::vector<int32_t>* field) const {
    const auto* const one = std::get_if<int64_t>(&entry_.value);
    const std::vector<double> ids =
        one != nullptr ? std::vector{static_cast<double>(*one)} : value_as<std::vector<double>>();
    if (ids.size() > GenerationSettings::kMostEndTokens)
      refuse(entry_.where, fmt::format("'{}' has {} ids, at most {} are accepted", path(), ids.size(),
                                       GenerationSettings::kMostEndTokens));
    *field = whole_numbers<int32_t>(ids);
    std::ranges::sort(*field);
    field->erase(std::unique(field->begin(), field->end()), field->end());
  }
  void operator()(std::vector<int64_t>* field) const {
    *field = whole_numbers<int64_t>(value_as<std::vector<double>>());
  }
  void operator()(ChoiceField field) const {
    // Accepts the booleans true and false if "true" and "false" are among the words.
    const bool* flag = std::get_if<bool>(&entry_.value);
    const std::string given = flag == nullptr ? value_as<std::string>() : *flag ? "true" : "false";
    const auto word = std::find(field.words.begin(), field.words.end(), given);
    if (word == field.words.end()) refuse_type();
    field.set(field.value, static_cast<int>(word - field.words.begin()));
  }
  void operator()(WordsField field) const {
    const std::vector<std::string>& given = value_as<std::vector<std::string>>();
    std::fill(field.has.begin(), field.has.end(), false);
    for (const std::string& word : given) {
      const auto found = std::find(field.words.begin(), field.words.end(), word);
      if (found == field.words.end())
        refuse(entry_.where,
               fmt::format("'{}' has {}, which is none of \"{}\"", path(), toml_string(begin_of(word, 40)),
                           fmt::join(field.words, "\", \"")),
               suggest_config_value(entry_));
      bool& has = field.has[static_cast<size_t>(found - field.words.begin())];
      if (has) refuse(entry_.where, fmt::format("'{}' has \"{}\" twice", path(), word));
      has = true;
    }
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

  template <class T>
  const T& value_as() const {
    const T* value = std::get_if<T>(&entry_.value);
    if (value == nullptr) refuse_type();
    return *value;
  }

  // Checks a string, and expands "~" and variables in it.
  std::string whole_path(const std::string& value) const {
    if (value.size() > kLongestStringBytes)
      refuse(entry_.where, fmt::format("'{}' is longer than {} bytes", path(), kLongestStringBytes));
    // Refuses control characters: messages with paths have one line, and a NUL would end a path.
    for (const char c : value)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        refuse(entry_.where, fmt::format("'{}' holds a control character", path()));
    // Expand "~" and "$" here, because no shell reads a config file. Strings other than paths have neither.
    const std::optional<std::string> whole = with_variables(value);
    if (!whole)
      refuse(entry_.where, fmt::format("'{}' has a variable that is not set: {}", path(), entry_.shown),
             "write the whole path, or export the variable");
    const std::optional<std::string> path_at_home = with_home(*whole);
    if (!path_at_home)
      refuse(entry_.where, fmt::format("'{}' has no known home directory: {}", path(), entry_.shown),
             kNoHomeHint);
    return *path_at_home;
  }
  // The elements of an array, which may be empty.
  template <class T>
  std::vector<T> elements_as() const {
    const auto* const numbers = std::get_if<std::vector<double>>(&entry_.value);
    return numbers != nullptr && numbers->empty() ? std::vector<T>() : value_as<std::vector<T>>();
  }

  template <class T>
  std::vector<T> whole_numbers(const std::vector<double>& values) const {
    std::vector<T> numbers;
    for (const double value : values) {
      if (value != std::floor(value)) refuse_type();
      check_range(value);
      numbers.push_back(static_cast<T>(value));
    }
    return numbers;
  }

  void check_range(double value) const {
    if (is_in_range(*entry_.key, value)) return;
    const ValueRange& range = entry_.key->range;
    refuse(
        entry_.where,
        fmt::format("'{}' must be {} {} and {} {}, got {}", path(), range.above_least ? "above" : "at least",
                    range.least, range.below_most ? "below" : "at most", range.most, entry_.shown),
        std::string(entry_.key->range_hint));
  }

  [[noreturn]] void refuse_type() const {
    refuse(entry_.where,
           fmt::format("'{}' must be {}, got {}", path(), expected_type(*entry_.key), entry_.shown),
           suggest_config_value(entry_));
  }

  const ConfigEntry& entry_;
};

struct TomlWriter {
  bool none_is_auto;
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  template <std::integral T>
  std::string operator()(const T* value) const {
    return std::to_string(*value);
  }
  std::string operator()(const double* value) const { return toml_number(*value); }
  std::string operator()(const std::string* value) const {
    std::string doubled;  // $$ for each $, which with_variables() undoes
    for (const char c : *value) doubled += std::string(c == '$' ? 2 : 1, c);
    return toml_string(doubled);
  }
  template <class T>
  std::string operator()(const std::vector<T>* values) const {
    std::vector<std::string> texts;
    for (const T& value : *values) texts.push_back((*this)(&value));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
  std::string operator()(const std::array<double, 2>* value) const {
    return fmt::format("[{}, {}]", toml_number((*value)[0]), toml_number((*value)[1]));
  }
  std::string operator()(const ChoiceField& choice) const {
    return toml_string(choice.words[static_cast<size_t>(choice.get(choice.value))]);
  }
  std::string operator()(const WordsField& list) const {
    std::string text;
    for (size_t i = 0; i < list.words.size(); ++i)
      if (list.has[i]) text += fmt::format("{}{}", text.empty() ? "" : ", ", toml_string(list.words[i]));
    return fmt::format("[{}]", text);
  }
  template <class T>
  std::string operator()(const std::optional<T>* value) const {
    if (!value->has_value()) return none_is_auto ? "\"auto\"" : "";
    return (*this)(&**value);
  }
};

struct TypeNamer {
  bool none_is_auto;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const int64_t*) const { return "an integer"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const std::string*) const { return "a string"; }
  std::string operator()(const std::array<double, 2>*) const { return "an array of two numbers"; }
  std::string operator()(const std::vector<int32_t>*) const { return "an integer or an array of integers"; }
  std::string operator()(const std::vector<double>*) const { return "an array of numbers"; }
  std::string operator()(const std::vector<std::string>*) const { return "an array of strings"; }
  std::string operator()(const ChoiceField& choice) const {
    return fmt::format("one of \"{}\"", fmt::join(choice.words, "\", \""));
  }
  std::string operator()(const WordsField& list) const {
    return fmt::format("an array of some of \"{}\"", fmt::join(list.words, "\", \""));
  }
  std::string operator()(const std::optional<int64_t>*) const {
    return none_is_auto ? "an integer or \"auto\"" : "an integer";
  }
  std::string operator()(const std::optional<std::vector<int64_t>>*) const {
    return "an array of integers or \"auto\"";
  }
  std::string operator()(const std::optional<bool>*) const { return "true, false or \"auto\""; }
};

// Whether a resumed run may have another value of the key without --allow-changes.
bool may_change(const ConfigKey& key, const RunConfig& old_config, const RunConfig& new_config) {
  const auto grows = [](std::optional<int64_t> before, std::optional<int64_t> after) {
    return before && after && *after > *before;
  };
  if (key.path() == "train.steps") return grows(old_config.train.steps, new_config.train.steps);
  if (key.path() == "train.epochs") return grows(old_config.train.epochs, new_config.train.epochs);
  // The base model of adapters may have moved: a resume compares its hash, not its path.
  if (key.path() == "model.pretrained" && old_config.lora.any()) return new_config.lora.any();
  return key.may_change_on_resume;
}

// The column "default" of docs/config.md.
std::string default_column(const ConfigKey& key) {
  if (key.presence == Presence::kRequired) return "required";
  if (!key.default_text.empty()) return std::string(key.default_text);
  const std::string text = value_as_toml(key, {});
  return text.empty() || key.presence == Presence::kOptional ? "none" : fmt::format("`{}`", text);
}

// The column "what it does": meaning, and words if the key has a list of words.
std::string what_column(const ConfigKey& key) {
  RunConfig any;
  const Field field = key.field(any);
  std::string values;
  if (const auto* const choice = std::get_if<ChoiceField>(&field))
    values = fmt::format("\"{}\"", fmt::join(choice->words, "\"`, `\""));
  else if (const auto* const list = std::get_if<WordsField>(&field))
    values = fmt::format("\"{}\"", fmt::join(list->words, "\"`, `\""));
  return values.empty() ? std::string(key.doc) : fmt::format("{} `{}`.", key.doc, values);
}

// The column of names in other programs: "`max_steps`, `training.steps`".
std::string elsewhere_column(const ConfigKey& key) {
  const auto names = words_in(key.elsewhere.substr(0, key.elsewhere.find('|')));
  return names.empty() ? "" : fmt::format("`{}`", fmt::join(names, "`, `"));
}

}  // namespace

void assign_value(const ConfigEntry& entry, RunConfig& config) {
  std::visit(Assigner(entry), entry.key->field(config));
}

std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  // TOML forbids most control characters in strings.
  for (const char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    else
      result += c;
  }
  return result + '"';
}

std::string value_as_toml(const ConfigKey& key, const RunConfig& config) {
  // The const_cast is safe: TomlWriter only reads.
  return std::visit(TomlWriter{key.none_is_auto}, key.field(const_cast<RunConfig&>(config)));
}

std::string expected_type(const ConfigKey& key) {
  RunConfig any;
  return std::visit(TypeNamer{key.none_is_auto}, key.field(any));
}

std::string written_value(const ConfigKey& key, const RunConfig& config) {
  const bool is_size =
      key.section == "model" && key.presence != Presence::kOptional && key.name != "resize_vocabulary";
  const bool is_unset =
      !config.model.pretrained.empty() || (key.name == "vocab_size" && config.model.vocab_size == 0);
  if (is_size && is_unset) return "";
  if (key.section == "lora" && key.name != "rank" && !config.lora.any()) return "";
  if (is_of_wsd(key) && config.schedule.kind != ScheduleKind::kWsd) return "";
  const std::string text = value_as_toml(key, config);
  // TOML has no null: a key without a value is left out.
  return key.presence != Presence::kDefault && (text == "\"\"" || text == "[]") ? "" : text;
}

std::string to_toml(const RunConfig& config) {
  std::string result;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = written_value(key, config);
    if (value.empty()) continue;
    if (key.section != section) {
      section = key.section;
      result += fmt::format("{}[{}]\n", result.empty() ? "" : "\n", section);
    }
    result += fmt::format("{} = {}\n", key.name, value);
  }
  return result;
}

std::string ConfigDifference::text() const {
  return fmt::format("{}: {} -> {}", key, old_value.empty() ? "(none)" : old_value,
                     new_value.empty() ? "(none)" : new_value);
}

std::vector<ConfigDifference> compare(const RunConfig& old_config, const RunConfig& new_config) {
  std::vector<ConfigDifference> result;
  for (const ConfigKey& key : config_keys()) {
    std::string old_value = written_value(key, old_config), new_value = written_value(key, new_config);
    if (old_value == new_value) continue;
    if (key.path() == "data.weights" && old_config.data.draws_like(new_config.data)) continue;
    // With weights each data set has its own epochs, so a run can neither add nor drop data.weights.
    const bool has_both = !old_value.empty() && !new_value.empty();
    result.push_back(
        {.key = key.path(),
         .old_value = std::move(old_value),
         .new_value = std::move(new_value),
         .may_change_on_resume = may_change(key, old_config, new_config),
         .may_change_if_allowed = key.may_change_if_allowed && (has_both || key.path() != "data.weights")});
  }
  return result;
}

std::vector<ConfigDifference> compare_models(const ModelConfig& old_model, const ModelConfig& new_model) {
  RunConfig before, after;
  static_cast<ModelConfig&>(before.model) = old_model;
  static_cast<ModelConfig&>(after.model) = new_model;
  return compare(before, after);
}

std::string fields_text(const ModelConfig& model) {
  FieldWriter fields;
  for_each_field(model, fields);
  return text_of_json(fields.json);
}

std::vector<ConfigDifference> accept_differences(const std::string& whose,
                                                 std::vector<ConfigDifference> differences, bool has_weights,
                                                 bool allow_changes) {
  std::vector<ConfigDifference> accepted;
  std::string refused;
  bool may_be_allowed = true;
  for (ConfigDifference& difference : differences) {
    if (difference.may_change_on_resume || (allow_changes && difference.may_change_if_allowed)) {
      accepted.push_back(std::move(difference));
      continue;
    }
    // The stored weights fit only a model of their sizes, and stored adapters only their matrices.
    has_weights &= !difference.key.starts_with("model.") && !difference.key.starts_with("lora.");
    may_be_allowed &= difference.may_change_if_allowed;
    refused += (refused.empty() ? "" : ", ") + difference.text();
  }
  if (refused.empty()) return accepted;
  std::string hint = "use the old values, or ";
  if (may_be_allowed) hint += "--allow-changes to change this run from here on, or ";
  hint += "another run.directory for a new run";
  const std::string run = shell_word(whose);
  if (has_weights && may_be_allowed)
    hint += fmt::format(
        ", with its weights, moments and place in the data: run.continue_from={} run.directory=NEW, or", run);
  if (has_weights)
    hint += fmt::format(
        "{} with these weights but new moments and all of the data: model.pretrained={} run.directory=NEW",
        may_be_allowed ? "" : ",", run);
  throw Error(ExitCode::kUsage, fmt::format("{} was begun with another config: {}", whose, refused), hint);
}

std::vector<ConfigDifference> check_resume(const RunConfig& old_config, const RunConfig& new_config,
                                           bool has_weights, bool allow_changes) {
  return accept_differences(new_config.run.directory, compare(old_config, new_config), has_weights,
                            allow_changes);
}

std::string config_table_markdown() {
  std::string result =
      "| key | default | unit | what it does | Hugging Face, torchtitan |\n|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys())
    result += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path(), default_column(key), key.unit,
                          what_column(key), elsewhere_column(key));
  return result;
}

}  // namespace ripstop
