// Writes from the table of keys: a config as TOML, the differences of two configs, the table of
// docs/config.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/core/error.h"
#include "train/config/config_keys.h"
#include "train/config/run_config.h"
#include "train/config/unsupported_keys.h"

namespace ripstop {
namespace {

// The shortest text that reads back as the same double. It has a point or an exponent, so that TOML does not
// take it for an integer.
std::string toml_number(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

// The value of a field as TOML; "" for an optional value that is absent.
struct TomlWriter {
  bool none_is_auto;
  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const { return toml_number(*value); }
  std::string operator()(const std::string* value) const { return toml_string(*value); }
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

// The type of a field, in the words of an error: "'run.seed' must be an integer, got true".
struct TypeNamer {
  bool none_is_auto;
  std::string operator()(const bool*) const { return "true or false"; }
  std::string operator()(const int64_t*) const { return "an integer"; }
  std::string operator()(const double*) const { return "a number"; }
  std::string operator()(const std::string*) const { return "a string"; }
  std::string operator()(const std::array<double, 2>*) const { return "an array of two numbers"; }
  std::string operator()(const ChoiceField& choice) const {
    return fmt::format("one of \"{}\"", fmt::join(choice.words, "\", \""));
  }
  std::string operator()(const WordsField& list) const {
    return fmt::format("an array of some of \"{}\"", fmt::join(list.words, "\", \""));
  }
  std::string operator()(const std::optional<int64_t>*) const {
    return none_is_auto ? "an integer or \"auto\"" : "an integer";
  }
  std::string operator()(const std::optional<bool>*) const { return "true, false or \"auto\""; }
};

// Whether the config leaves a size to others: all sizes to a pretrained model, or vocab_size to the data set.
// Such a size is 0 in the struct, which parse_run_config would refuse.
bool is_unset_size(const ConfigKey& key, const RunConfig& config) {
  if (key.section != "model" || key.presence == Presence::kOptional) return false;
  return !config.model.pretrained.empty() || (key.name == "vocab_size" && config.model.vocab_size == 0);
}

// Whether the key is one of adapters, and there are none: parse_run_config would refuse it.
bool is_of_no_adapter(const ConfigKey& key, const RunConfig& config) {
  return key.section == "lora" && key.name != "rank" && !config.lora.any();
}

std::string written_value(const ConfigKey& key, RunConfig& config) {
  // TOML has no null: a key without a value has no line.
  if (is_unset_size(key, config) || is_of_no_adapter(key, config)) return "";
  const std::string text = value_as_toml(key, config);
  return key.presence == Presence::kOptional && text == "\"\"" ? "" : text;
}

// Whether a resumed run may have another value of the key.
bool may_change(const ConfigKey& key, const RunConfig& old_config, const RunConfig& new_config) {
  const auto grows = [](std::optional<int64_t> before, std::optional<int64_t> after) {
    return before && after && *after > *before;
  };
  // Older versions stored values that they did not do. Such a value had no effect, so it may be mended.
  if (is_unsupported(key, old_config) && !is_unsupported(key, new_config)) return true;
  // A run may become longer. Making it shorter would have to undo steps.
  if (key.path() == "train.steps") return grows(old_config.train.steps, new_config.train.steps);
  if (key.path() == "train.epochs") return grows(old_config.train.epochs, new_config.train.epochs);
  // The base of adapters is needed at every start, and compared by its hash, not by its path.
  if (key.path() == "model.pretrained" && old_config.lora.any()) return new_config.lora.any();
  return key.may_change_on_resume;
}

// The default as docs/config.md shows it.
std::string default_column(const ConfigKey& key) {
  if (key.presence == Presence::kRequired) return "required";
  if (!key.default_text.empty()) return std::string(key.default_text);
  RunConfig defaults;
  const std::string text = value_as_toml(key, defaults);
  return text.empty() || key.presence == Presence::kOptional ? "none" : fmt::format("`{}`", text);
}

// The values of a key, if they can be listed.
struct ValueLister {
  bool none_is_auto;
  std::string operator()(const ChoiceField& choice) const {
    return fmt::format("`\"{}\"`", fmt::join(choice.words, "\"`, `\""));
  }
  std::string operator()(const WordsField& list) const {
    return fmt::format("`\"{}\"`", fmt::join(list.words, "\"`, `\""));
  }
  std::string operator()(const std::optional<bool>*) const {
    return none_is_auto ? "`\"auto\"`, `true`, `false`" : "`true`, `false`";
  }
  template <class T>
  std::string operator()(const T&) const {
    return "";
  }
};

// The key's meaning, and its values if they can be listed.
std::string what_column(const ConfigKey& key) {
  RunConfig any;
  const std::string values = std::visit(ValueLister{key.none_is_auto}, key.field(any));
  return values.empty() ? std::string(key.doc) : fmt::format("{} {}.", key.doc, values);
}

// "`max_steps`, `training.steps`". A name that both programs use appears once.
std::string elsewhere_column(const ConfigKey& key) {
  std::string result;
  for (std::string_view names : {key.hugging_face, key.torchtitan}) {
    while (!names.empty()) {
      const size_t space = names.find(' ');
      const std::string name = fmt::format("`{}`", names.substr(0, space));
      if (result.find(name) == std::string::npos) result += (result.empty() ? "" : ", ") + name;
      names = space == std::string_view::npos ? std::string_view{} : names.substr(space + 1);
    }
  }
  return result;
}

}  // namespace

std::string toml_string(std::string_view text) {
  std::string result = "\"";
  // TOML forbids control characters in strings, and DEL with them.
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

std::string value_as_toml(const ConfigKey& key, RunConfig& config) {
  return std::visit(TomlWriter{key.none_is_auto}, key.field(config));
}

std::string expected_type(const ConfigKey& key) {
  RunConfig any;
  return std::visit(TypeNamer{key.none_is_auto}, key.field(any));
}

std::string to_toml(const RunConfig& config) {
  // ConfigKey::field wants a config that may change. The copy is only read.
  RunConfig copy = config;
  std::string result;
  std::string_view section;
  for (const ConfigKey& key : config_keys()) {
    const std::string value = written_value(key, copy);
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
  RunConfig old_copy = old_config;
  RunConfig new_copy = new_config;
  std::vector<ConfigDifference> result;
  for (const ConfigKey& key : config_keys()) {
    std::string old_value = written_value(key, old_copy);
    std::string new_value = written_value(key, new_copy);
    // Compare what is written: two values that read back equal are the same value.
    if (old_value == new_value) continue;
    result.push_back(
        {key.path(), std::move(old_value), std::move(new_value), may_change(key, old_config, new_config)});
  }
  return result;
}

std::vector<ConfigDifference> compare_models(const ModelConfig& old_model, const ModelConfig& new_model) {
  // Configs that differ in their sizes alone: the table of keys knows how to compare and name those.
  RunConfig before, after;
  static_cast<ModelConfig&>(before.model) = old_model;
  static_cast<ModelConfig&>(after.model) = new_model;
  return compare(before, after);
}

std::vector<ConfigDifference> accept_differences(const std::string& whose,
                                                 std::vector<ConfigDifference> differences) {
  std::vector<ConfigDifference> accepted;
  std::string refused;
  for (ConfigDifference& difference : differences) {
    if (difference.may_change_on_resume)
      accepted.push_back(std::move(difference));
    else
      refused += (refused.empty() ? "" : ", ") + difference.text();
  }
  if (!refused.empty())
    throw Error(ExitCode::kUsage, fmt::format("{} was begun with another config: {}", whose, refused),
                "use the old values, or another run.directory for a new run");
  return accepted;
}

std::vector<ConfigDifference> check_resume(const RunConfig& old_config, const RunConfig& new_config) {
  return accept_differences(new_config.run.directory, compare(old_config, new_config));
}

std::string config_table_markdown() {
  std::string result =
      "| key | default | unit | what it does | Hugging Face, torchtitan |\n"
      "|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys())
    result += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path(), default_column(key), key.unit,
                          what_column(key), elsewhere_column(key));
  return result;
}

}  // namespace ripstop
