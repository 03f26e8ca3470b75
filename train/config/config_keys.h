// The table of config keys: type, range, unit and documentation of each. It is the only list of keys.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/config/run_config.h"

namespace ripstop {

/// A value that is one of a few words, stored as an enum.
struct ChoiceField {
  std::span<const std::string_view> words;  ///< in the order of the enum's values
  void* value;
  int (*get)(const void* value);
  void (*set)(void* value, int index);
};

/// A value that is a list of some of a few words, in any order, without repetition.
struct WordsField {
  std::span<const std::string_view> words;
  std::span<bool> has;  ///< by word: whether it is in the list
};

/// A pointer to the value of a key in a RunConfig.
using Field = std::variant<bool*, int64_t*, double*, std::string*, std::optional<int64_t>*,
                           std::optional<bool>*, std::array<double, 2>*, ChoiceField, WordsField>;

/// The range of a number.
struct ValueRange {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
  bool above_least = false;  ///< `least` itself is refused
  bool below_most = false;   ///< `most` itself is refused
};

enum class Presence {
  kDefault,   ///< may be left out
  kRequired,  ///< must be given
  kOptional,  ///< may be left out; it then has no value and is not written
};

/// One row of the table.
struct ConfigKey {
  std::string_view section;
  std::string_view name;
  Field (*field)(RunConfig& config);
  Presence presence = Presence::kDefault;
  ValueRange range = {};
  std::string_view range_hint = {};  ///< the hint for a number outside of the range
  bool may_change_on_resume = false;
  bool none_is_auto = false;           ///< the value of an empty optional is written "auto"
  std::string_view default_text = {};  ///< for docs/config.md; empty: the struct's default
  std::string_view unit = {};          ///< empty: none
  std::string_view doc = {};           ///< one sentence, Markdown
  /// Names in Hugging Face and torchtitan, for docs/config.md; after a "|" further names that people try.
  std::string_view elsewhere = {};

  /// "train.steps".
  std::string path() const;
};

/// Every key, section by section, in the order in which a config is written.
std::span<const ConfigKey> config_keys();

/// Finds the key of that section and name; null if there is none.
const ConfigKey* find_config_key(std::string_view section, std::string_view name);

/// The words of `text` between any of the `separators`.
std::vector<std::string_view> words_in(std::string_view text, std::string_view separators = " ");

/// The candidate that `typed` means: `typed` is another program's word for it (bf16) or a typing error; "" if
/// there is none.
std::string suggest(std::string_view typed, const std::vector<std::string>& candidates);

/// The hint for another program's key that has no counterpart here; "" if none is known. `word`: a key or
/// option, "section.key", or a refused value as "section.key=value".
std::string answer_to(std::string_view word);

/// The paths of all keys that ripstop or other programs call `name`, keys of `section` first; without any,
/// the path of the nearest name.
std::vector<std::string> suggest_keys(std::string_view section, std::string_view name);

/// The hint for a key that does not exist: "did you mean 'optimizer.learning_rate'?", or a list of the
/// section's keys.
std::string suggest_config_key(std::string_view section, std::string_view name);

/// The hint for a section that does not exist.
std::string suggest_config_section(std::string_view section);

/// The value of `key` as TOML; "" for an empty optional that is not none_is_auto.
std::string value_as_toml(const ConfigKey& key, const RunConfig& config);

/// `text` as a quoted and escaped TOML string.
std::string toml_string(std::string_view text);

/// The type of the key for messages: "an integer", "one of \"auto\", \"cpu\", \"cuda\"".
std::string expected_type(const ConfigKey& key);

}  // namespace ripstop
