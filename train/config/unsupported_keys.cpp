#include "train/config/unsupported_keys.h"

#include <fmt/format.h>

#include "model/core/error.h"
#include "train/config/config_keys.h"

namespace ripstop {
namespace {

// One key that this version does only for some of its values. train refuses the others of every row.
struct UnsupportedKey {
  std::string_view path;
  bool (*is_done)(const RunConfig& config);
  std::string_view instead;
  bool in_older_runs = false;  // version 0.1.0 stored it in a run's config.toml and did nothing
};

constexpr UnsupportedKey kUnsupportedKeys[] = {
    {.path = "log.tensorboard",
     .is_done = [](const RunConfig& c) { return !c.log.tensorboard; },
     .instead = "log.tensorboard = false",
     .in_older_runs = true},
};

// A command refuses only the keys that change its result. For others a note is enough. A value on today's
// command line cannot come from an older version.
bool is_refused(const UnsupportedKey& key, ConfigReader reader, std::string_view place) {
  switch (reader) {
    case ConfigReader::kResume:
      return !key.in_older_runs || place == kCommandLine;
    case ConfigReader::kTrain:
      return true;
  }
  return true;
}

// Its row in the table of keys. A typing error above fails at the first use.
const ConfigKey& key_of(const UnsupportedKey& unsupported) {
  const size_t dot = unsupported.path.find('.');
  const ConfigKey* key = find_config_key(unsupported.path.substr(0, dot), unsupported.path.substr(dot + 1));
  RIPSTOP_CHECK(key != nullptr, "{} is in the table of keys", unsupported.path);
  return *key;
}

// "generation.num_beams = 4".
std::string assignment(const UnsupportedKey& unsupported, const RunConfig& config) {
  RunConfig copy = config;
  return fmt::format("{} = {}", unsupported.path, value_as_toml(key_of(unsupported), copy));
}

}  // namespace

void refuse_unsupported_keys(const RunConfig& config, ConfigReader reader,
                             const std::function<std::string(const ConfigKey&)>& place) {
  std::string found;
  std::string instead;
  for (const UnsupportedKey& key : kUnsupportedKeys) {
    if (key.is_done(config)) continue;
    const std::string at = place(key_of(key));
    if (!is_refused(key, reader, at)) continue;
    found += fmt::format("{}{}{}{}", found.empty() ? "" : ", ", at, at.empty() ? "" : ": ",
                         assignment(key, config));
    instead += fmt::format("{}{}", instead.empty() ? "" : ", ", key.instead);
  }
  if (!found.empty())
    throw Error(ExitCode::kUsage, "not in this version of ripstop: " + found, "use instead: " + instead);
}

std::vector<std::string> unsupported_key_notes(const RunConfig& config) {
  std::vector<std::string> notes;
  for (const UnsupportedKey& key : kUnsupportedKeys)
    if (!key.is_done(config))
      notes.push_back(fmt::format("{} is not in this version of ripstop; use instead: {}",
                                  assignment(key, config), key.instead));
  return notes;
}

std::string instead_of_unsupported(const ConfigKey& key) {
  for (const UnsupportedKey& each : kUnsupportedKeys)
    if (each.path == key.path()) return std::string(each.instead);
  return "";
}

bool is_unsupported(const ConfigKey& key, const RunConfig& config) {
  for (const UnsupportedKey& each : kUnsupportedKeys)
    if (each.path == key.path()) return !each.is_done(config);
  return false;
}

}  // namespace ripstop
