// The table of config keys: type, range, unit and documentation of each. No other list of keys exists.
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

/// A value that is one of a few words and stored in an enum.
struct ChoiceField {
  std::span<const std::string_view> words;  ///< in the order of the enum's values
  void* value;
  int (*get)(const void* value);
  void (*set)(void* value, int index);
};

/// A value that is a list of some of a few words, each at most once, in any order.
struct WordsField {
  std::span<const std::string_view> words;
  std::span<bool> has;  ///< by word: whether it is in the list
};

/// Where a key's value is stored: a pointer into a RunConfig.
using Field = std::variant<bool*, int64_t*, double*, std::string*, std::optional<int64_t>*,
                           std::optional<bool>*, std::array<double, 2>*, ChoiceField, WordsField>;

/// The values that a number may have.
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
  bool none_is_auto = false;           ///< an optional that is written "auto" if it has no value
  std::string_view default_text = {};  ///< shown instead of the struct's default
  std::string_view unit = {};          ///< empty: none
  std::string_view doc = {};           ///< one sentence, Markdown
  /// Names in Hugging Face and torchtitan, which docs/config.md shows; after a "|" further names that people
  /// try.
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

/// The candidate that `typed` means: another program's word for it (bf16), or a slip; "" if none is near.
std::string suggest(std::string_view typed, const std::vector<std::string>& candidates);

/// The answer to a word of other programs that no key here replaces: what to do instead; "" if none is
/// known. `word`: a key or an option, "section.key", or a refused value, "section.key=value".
std::string answer_to(std::string_view word);

/// The paths of the keys that are called `name` here or in other programs, those of `section` first; if none
/// is, the path of the nearest name.
std::vector<std::string> suggest_keys(std::string_view section, std::string_view name);

/// The hint for a key that does not exist: "did you mean 'optimizer.learning_rate'?", or a list of the
/// section's keys.
std::string suggest_config_key(std::string_view section, std::string_view name);

/// The hint for a section that does not exist.
std::string suggest_config_section(std::string_view section);

/// Writes the value of `key` as TOML; "" if it is an optional without a value. Does not change `config`.
std::string value_as_toml(const ConfigKey& key, RunConfig& config);

/// Quotes and escapes `text` as a TOML string.
std::string toml_string(std::string_view text);

/// The type of the key's value for messages: "an integer", "one of \"auto\", \"cpu\", \"cuda\"".
std::string expected_type(const ConfigKey& key);

}  // namespace ripstop
