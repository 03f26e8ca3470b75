// The entries of a config file and of the overrides: one value for each key, not checked yet.
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

/// A problem of a config. All of them are collected, so that people can mend them after one look.
struct ConfigProblem {
  int64_t line;      ///< line of the file, which orders the message; 0: of no line, comes last
  std::string text;  ///< begins with the place: "x.toml:12: unknown key 'run.sed'"
  std::string hint;  ///< may be ""
  ExitCode code = ExitCode::kUsage;  ///< exit code if there is no other problem
};
using ConfigProblems = std::vector<ConfigProblem>;

/// A message is one line: a file of another program may have a hundred unknown keys.
inline constexpr size_t kMostProblemsShown = 8;

/// Does nothing if there is no problem. Throws Error with one problem and its hint, or Error(kUsage) with the
/// first kMostProblemsShown, each followed by its hint, and the number of the others.
void refuse_problems(ConfigProblems problems);

/// A TOML value. monostate: a value of a type that no key has (a table, a date, a mixed array). An array
/// without elements is one of numbers.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

/// The place of a key that an override gives.
inline constexpr const char* kCommandLine = "command line";

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

/// Writes the entry's value into its field of `config`. Throws Error(kUsage) with the place, what is expected
/// and what was found, if the value has a wrong type, is outside its range or is not in this version. The
/// hint is the line to write, if the value shows which one is meant.
void assign_value(const ConfigEntry& entry, RunConfig& config);

/// The line to write instead of a value of a wrong type, if the value shows which one is meant: for "bf16" it
/// is `compute = "bfloat16"`; "" if nothing is near enough.
std::string suggest_config_value(const ConfigEntry& entry);

}  // namespace ripstop
