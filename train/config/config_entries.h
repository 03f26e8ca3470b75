// The entries of a config file and of the overrides: one value for each key, not checked yet.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/config/config_keys.h"

namespace ripstop {

class ConfigProblems;

/// A TOML value. monostate: a value of a type that no key has (a table, a date, a mixed array). An array
/// without elements is one of numbers.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

/// One key's value and the place that gave it.
struct ConfigEntry {
  const ConfigKey* key = nullptr;
  ConfigValue value;
  std::string shown;  ///< the value for messages, cut short
  std::string where;  ///< "configs/x.toml:12", or "command line"
  int64_t line = 0;   ///< 0: not from the file
};

/// Returns the entries of the TOML text in its order, then those of the overrides. An override removes the
/// entries of its own key and of keys that exclude it: train.epochs removes train.steps. Throws Error(kUsage)
/// if the text is no TOML, if a key is given twice, and if a file or a line is too long. Keys and sections
/// that are unknown, of the text and of the overrides, go to `problems`.
std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides,
                                             ConfigProblems& problems);

/// The line to write instead of a value of a wrong type, if the value shows which one is meant: for "bf16" it
/// is `compute = "bfloat16"`; "" if nothing is near enough.
std::string suggest_config_value(const ConfigEntry& entry);

}  // namespace ripstop
