// The keys and values in a config file and in overrides, not checked yet.
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
  /// Line of the file; 0: none. Messages list problems by line, those without one last.
  int64_t line;
  std::string text;                  ///< begins with the place: "x.toml:12: unknown key 'run.sed'"
  std::string hint;                  ///< may be ""
  ExitCode code = ExitCode::kUsage;  ///< exit code if this is the only problem
};
using ConfigProblems = std::vector<ConfigProblem>;

/// The limit of problems in one message: another program's file may have a hundred unknown keys.
inline constexpr size_t kMostProblemsShown = 8;

/// Does nothing without problems. Throws a single problem as an Error with its code and hint; several as one
/// Error(kUsage), which lists the first kMostProblemsShown with their hints, one on each line, and counts the
/// others.
void refuse_problems(ConfigProblems problems);

/// A TOML value. monostate: a type that no key has (a table, a date, a mixed array). An empty array is stored
/// as std::vector<double>.
using ConfigValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

struct ConfigEntry {
  const ConfigKey* key = nullptr;
  ConfigValue value;
  std::string shown;  ///< the value, shortened for messages
  std::string where;  ///< "configs/x.toml:12", or "command line"
  int64_t line = 0;   ///< line of the file; 0: an override
};

/// The entries of the TOML text by line, then the overrides. An override removes earlier entries of its key,
/// and the text's entries that exclude it: train.epochs removes train.steps. Unknown keys and sections, a
/// section used as a key, malformed overrides and a [lora] without any key go to `problems`. Throws
/// Error(kUsage) if the text is no UTF-8 or TOML, gives a key twice, or if it or a line is too long. `name`:
/// the text's name in messages.
std::vector<ConfigEntry> read_config_entries(std::string_view toml, const std::string& name,
                                             std::span<const std::string> overrides,
                                             ConfigProblems& problems);

/// Writes the entry's value into the field of its key in `config`. Throws Error(kUsage), with the place, for
/// a value that the key does not accept; for a wrong type or word, the hint is suggest_config_value.
void assign_value(const ConfigEntry& entry, RunConfig& config);

/// The hint for a wrong value: `write compute = "bfloat16"` for "bf16"; "" if it is not clear what is meant.
std::string suggest_config_value(const ConfigEntry& entry);

}  // namespace ripstop
