// The entries of a config file and of the overrides: keys and their values, not checked yet.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/core/error.h"
#include "train/config/config_keys.h"

namespace ripstop {

/// Throws Error(kUsage) with one problem: "`where`: `what`".
[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = {});

/// A problem of a config. All problems are collected, so that people can fix them together.
struct ConfigProblem {
  int64_t line;      ///< line of the file; 0: none. Messages list problems by line, those without one last
  std::string text;  ///< begins with the place: "x.toml:12: unknown key 'run.sed'"
  std::string hint;  ///< may be ""
  ExitCode code = ExitCode::kUsage;  ///< exit code if this is the only problem
};
using ConfigProblems = std::vector<ConfigProblem>;

/// The most problems in a message: a file of another program may have a hundred unknown keys.
inline constexpr size_t kMostProblemsShown = 8;

/// Throws if there are problems: an Error with the only problem and its hint, or Error(kUsage) with the first
/// kMostProblemsShown, each followed by its hint, and the number of the others.
void refuse_problems(ConfigProblems problems);

/// A TOML value. monostate: a type that no key has (a table, a date, a mixed array). An empty array counts as
/// one of numbers.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

/// ConfigEntry::where of an override.
inline constexpr const char* kCommandLine = "command line";

/// The value of a key, and where it is given.
struct ConfigEntry {
  const ConfigKey* key = nullptr;
  ConfigValue value;
  std::string shown;  ///< the value, shortened for messages
  std::string where;  ///< "configs/x.toml:12", or "command line"
  int64_t line = 0;   ///< 0: not from the file
};

/// Returns the entries of the TOML text in its order, then the entries of the overrides. An override removes
/// entries of its key and of keys that exclude it: train.epochs removes train.steps. Adds unknown keys and
/// sections to `problems`. Throws Error(kUsage) if the text is no TOML or gives a key twice, or if the file
/// or a line is too long.
std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides,
                                             ConfigProblems& problems);

/// Writes the entry's value into its field of `config`. Throws Error(kUsage), with the place, the expected
/// and the given value, if the type is wrong, or if the value is outside its range or not in this version.
/// The hint is suggest_config_value.
void assign_value(const ConfigEntry& entry, RunConfig& config);

/// The hint for a wrong value, if it shows which value is meant: `write compute = "bfloat16"` for "bf16";
/// else "".
std::string suggest_config_value(const ConfigEntry& entry);

}  // namespace ripstop
