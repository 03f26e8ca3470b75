// What is written from the table of keys: a config as TOML, the differences of two, the README's table.
#include <fmt/format.h>

#include "model/error.h"
#include "train/run_config.h"
#include "train/run_config_keys.h"

namespace ripstop {
namespace {

// Sizes that are not this config's to say: those of a pretrained model, and a vocabulary that is the data
// set's.
bool is_unset_size(const ConfigKey& key, const RunConfig& config) {
  if (key.section != "model" || key.presence == Presence::kOptional) return false;
  return !config.model.pretrained.empty() || (key.name == "vocab_size" && config.model.vocab_size == 0);
}

std::string written_value(const ConfigKey& key, RunConfig& config) {
  if (is_unset_size(key, config)) return "";
  const std::string text = value_as_toml(key, config);
  return key.presence == Presence::kOptional && text == "\"\"" ? "" : text;
}

bool may_change(const ConfigKey& key, const RunConfig& old_config, const RunConfig& new_config) {
  const auto grows = [](std::optional<int64_t> before, std::optional<int64_t> after) {
    return before && after && *after > *before;
  };
  if (key.path() == "train.steps") return grows(old_config.train.steps, new_config.train.steps);
  if (key.path() == "train.epochs") return grows(old_config.train.epochs, new_config.train.epochs);
  return key.may_change_on_resume;
}

std::string default_column(const ConfigKey& key) {
  if (key.presence == Presence::kRequired) return "required";
  if (!key.default_text.empty()) return std::string(key.default_text);
  RunConfig defaults;
  const std::string text = value_as_toml(key, defaults);
  return text.empty() || key.presence == Presence::kOptional ? "none" : fmt::format("`{}`", text);
}

// "`max_steps`, `training.steps`"; a name that both use once.
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

std::string to_toml(const RunConfig& config) {
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
    if (old_value == new_value) continue;
    result.push_back(
        {key.path(), std::move(old_value), std::move(new_value), may_change(key, old_config, new_config)});
  }
  return result;
}

std::vector<ConfigDifference> check_resume(const RunConfig& old_config, const RunConfig& new_config) {
  std::vector<ConfigDifference> accepted;
  std::string refused;
  for (ConfigDifference& difference : compare(old_config, new_config)) {
    if (difference.may_change_on_resume)
      accepted.push_back(std::move(difference));
    else
      refused += (refused.empty() ? "" : ", ") + difference.text();
  }
  if (!refused.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("{} was begun with another config: {}", old_config.run.directory, refused),
                "take the old values, or a new run.directory for a new run");
  return accepted;
}

std::string config_table_markdown() {
  std::string result =
      "| key | default | unit | what it does | Hugging Face, torchtitan |\n"
      "|---|---|---|---|---|\n";
  for (const ConfigKey& key : config_keys())
    result += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path(), default_column(key), key.unit,
                          key.doc, elsewhere_column(key));
  return result;
}

}  // namespace ripstop
