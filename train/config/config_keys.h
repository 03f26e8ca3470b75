// The table of all config keys: type, range, unit and documentation.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "train/config/run_config.h"

namespace ripstop {

/// A field whose value is one word of a fixed set, stored as an enum. `get` and `set` convert the enum to the
/// word's index and back.
struct ChoiceField {
  std::span<const std::string_view> words;  ///< in the order of the enum's values
  void* value;
  int (*get)(const void* value);
  void (*set)(void* value, int index);
};

/// A field whose value is a list of words from a fixed set, in any order, without repetition.
struct WordsField {
  std::span<const std::string_view> words;
  std::span<bool> has;  ///< for each word, whether it is in the list
};

/// A pointer to the value of a key in a RunConfig.
using Field =
    std::variant<bool*, int64_t*, double*, std::string*, std::optional<int64_t>*, std::optional<bool>*,
                 std::optional<std::vector<int64_t>>*, std::array<double, 2>*, std::vector<int32_t>*,
                 std::vector<double>*, std::vector<std::string>*, ChoiceField, WordsField>;

enum class Presence {
  kDefault,  ///< if left out, the key has its default
  kRequired,
  kOptional,  ///< if left out, the key has no value and is not written to a config
};

struct ConfigKey {
  std::string_view section;
  std::string_view name;
  Field (*field)(RunConfig& config);
  Presence presence = Presence::kDefault;
  ValueRange range = {};
  std::string_view range_hint = {};  ///< the hint for a number outside the range; may be empty
  bool may_change_on_resume = false;
  bool may_change_if_allowed = false;  ///< on resume with --allow-changes, and with run.continue_from
  bool none_is_auto = false;           ///< an empty optional is written as "auto"
  std::string_view default_text = {};  ///< in docs/config.md instead of the struct's default
  std::string_view unit = {};          ///< unit of the value; may be empty
  std::string_view doc = {};           ///< the meaning, in Markdown
  /// Names of the key in Hugging Face and torchtitan, for docs/config.md; after a "|", further names that
  /// people try.
  std::string_view elsewhere = {};

  /// "train.steps".
  std::string path() const;
};

/// All keys, section by section, in the order in which a config is written.
std::span<const ConfigKey> config_keys();

/// The key `name` of [section]; null if there is no key of that name.
const ConfigKey* find_config_key(std::string_view section, std::string_view name);

/// Whether the key may have the number `value`.
bool is_in_range(const ConfigKey& key, double value);

/// The candidate that other programs call `typed` (bfloat16 for bf16), else the nearest in spelling; else "".
std::string suggest(std::string_view typed, const std::vector<std::string>& candidates);

/// The hint for another program's word that has no counterpart in ripstop; "" if none is known. `word`: a
/// section, a key, an option, "section.key", or a refused value as "section.value".
std::string answer_to(std::string_view word);

/// The paths of all keys that ripstop or other programs call `name`, keys of `section` first. If there are
/// none, that of the nearest name, if any.
std::vector<std::string> suggest_keys(std::string_view section, std::string_view name);

/// The hint: answer_to(), "did you mean 'train.steps'?", the section's keys, or suggest_config_section().
std::string suggest_config_key(std::string_view section, std::string_view name);

/// The hint: "did you mean [optimizer]?", answer_to(), or a list of the sections.
std::string suggest_config_section(std::string_view section);

/// The value as TOML. An empty optional is "auto" if key.none_is_auto, else "".
std::string value_as_toml(const ConfigKey& key, const RunConfig& config);

/// Whether the key has a meaning only with schedule.kind = "wsd".
bool is_of_wsd(const ConfigKey& key);

/// The value that to_toml writes; "" for a key without value or default, and for keys that a config may not
/// have: sizes that the pretrained model or the data set decides, other keys of [lora] beside a rank of 0,
/// and keys of the schedule "wsd" with another schedule.
std::string written_value(const ConfigKey& key, const RunConfig& config);

/// A text that reads back as `value`. A finite one has a point or an exponent: else TOML reads an integer.
std::string toml_number(double value);

/// `text` as a quoted and escaped TOML string.
std::string toml_string(std::string_view text);

/// The key's type for messages: "an integer", "one of \"auto\", \"cpu\", \"cuda\"".
std::string expected_type(const ConfigKey& key);

}  // namespace ripstop
