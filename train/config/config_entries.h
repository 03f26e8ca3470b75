// What a config file and the overrides say, key by key, before any of it is believed.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/config/config_keys.h"

namespace ripstop {

/// A value as TOML has it. monostate: of a kind that no key takes (a table, a date, a mixed array).
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>>;

/// One key's value and where it was given.
struct ConfigEntry {
  const ConfigKey* key = nullptr;
  ConfigValue value;
  std::string shown;  ///< the value for messages, cut short
  std::string where;  ///< "configs/x.toml:12", or "command line"
  int64_t line = 0;   ///< 0: not from the file
};

/// The entries of the TOML text, in its order, then those of the overrides, which displace entries of the
/// same key and of keys that exclude theirs (train.epochs takes train.steps' place). Throws Error(kUsage) for
/// what is no TOML, unknown keys and sections, keys given twice, and text of hostile size.
std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides);

}  // namespace ripstop
