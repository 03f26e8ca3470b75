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

/// Throws Error(kUsage) with the message "`where`: `what`".
[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = {});

/// A problem of a config. All problems are collected, so that people can fix them together.
struct ConfigProblem {
  /// Line of the file; 0: none. Messages list problems in the order of lines, those without a line last.
  int64_t line;
  std::string text;                  ///< begins with the place: "x.toml:12: unknown key 'run.sed'"
  std::string hint;                  ///< may be ""
  ExitCode code = ExitCode::kUsage;  ///< exit code if this is the only problem
};
using ConfigProblems = std::vector<ConfigProblem>;

/// The most problems that a message lists: another program's file may have a hundred unknown keys.
inline constexpr size_t kMostProblemsShown = 8;

/// Does nothing without problems. Throws an only problem as an Error with its code and hint. Throws several
/// as one Error(kUsage), which lists the first kMostProblemsShown, each with its hint, and counts the others.
void refuse_problems(ConfigProblems problems);

/// A TOML value. monostate: of a type that no key has (a table, a date, a mixed array). An empty array is a
/// vector of numbers.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

/// The text in ConfigEntry::where for an override.
inline constexpr const char* kCommandLine = "command line";

/// The value of a key, and where it is given.
struct ConfigEntry {
  const ConfigKey* key = nullptr;
  ConfigValue value;
  std::string shown;  ///< the value, shortened for messages
  std::string where;  ///< "configs/x.toml:12", or "command line"
  int64_t line = 0;   ///< line of the file; 0: an override
};

/// Returns the entries of the TOML text in the order of the text, then the entries of the overrides. An
/// override removes earlier entries of its key, and entries of keys that exclude its key: train.epochs
/// removes train.steps. Adds unknown keys and sections to `problems`. Throws Error(kUsage) if the text is not
/// TOML, gives a key twice, or is too long, or if a line is too long. `name` is the name of the text in
/// messages.
std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides,
                                             ConfigProblems& problems);

/// Writes the entry's value into the field of its key in `config`.
/// Throws Error(kUsage) if the value has the wrong type, is outside its range, or is not supported by this
/// version.
/// The message has the place, the expected and the given value; the hint is suggest_config_value.
void assign_value(const ConfigEntry& entry, RunConfig& config);

/// The hint for a wrong value: what to write instead, such as `write compute = "bfloat16"` for "bf16"; "" if
/// the value does not show what is meant.
std::string suggest_config_value(const ConfigEntry& entry);

}  // namespace ripstop
