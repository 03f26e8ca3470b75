#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/text/utf8.h"
#include "model/core/error.h"
#include "model/core/function_ref.h"
#include "model/core/one_line.h"

namespace ripstop {

/// `json` as text, indented by `indent` spaces a level, or on one line if `indent` is negative. Bytes that
/// are not UTF-8 become U+FFFD.
std::string text_of_json(const nlohmann::ordered_json& json, int indent = -1);

/// `json` with null for each NaN, Infinity and -Infinity outside of strings. Python's json module writes
/// these words, which JSON does not have.
std::string with_nulls_for_nan(std::string_view json);

/// Names and values of the members of the valid JSON object `json`, in order. A value is its text in `json`,
/// so that numbers keep all digits.
std::vector<std::pair<std::string, std::string_view>> members_of(std::string_view json);

/// The first twelve names in the JSON object `object`, for a message; "no fields" if it is empty.
template <class Object>
std::string shown_names(const Object& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(begin_of(name));
  return names.empty() ? "no fields" : in_one_line(some_of(names, 12));
}

/// `object`, which must not be empty, as text indented by one space a level, with a last member "hash":
/// "xxh3-128:" and the hash of all bytes before the comma in front of it (JsonReader::require_seal).
std::string sealed_text(const nlohmann::ordered_json& object);

/// Reads JSON. Throws Error(`refusal`), whose message begins with the file's `name`.
class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  JsonReader(std::string name, ExitCode refusal) : name_(std::move(name)), refusal_(refusal) {}

  /// Throws Error(`refusal`). The message is "NAME: " and the formatted text, on one line.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_with("", format, std::forward<Args>(args)...);
  }
  template <class... Args>
  [[noreturn]] void refuse_with(const std::string& hint, fmt::format_string<Args...> format,
                                Args&&... args) const {
    throw Error(refusal_, name_ + ": " + in_one_line(fmt::format(format, std::forward<Args>(args)...)), hint);
  }

  /// Most levels of lists and objects, few enough for recursive code.
  static constexpr int kMostLevels = 32;
  /// Refuses `text` if it is not JSON (RFC 8259), not an object, nests deeper than kMostLevels, has an object
  /// with a key twice, or has more than 20,000 keys, the first 256 of each object not counted. Values deeper
  /// than `kept_levels` are checked, but left out of the result.
  Json parse(std::string_view text, int kept_levels = kMostLevels) const;
  /// Called for keys, values, and starts and ends of lists and objects; in a part that is left out, not for
  /// all of them. `path`: the keys from the document down to there, "" for an element of a list. Use `value`
  /// only for the event `value`. Returns whether to leave the key or value out of the result; keys left out
  /// do not count towards the limit.
  using Take =
      FunctionRef<bool(Json::parse_event_t event, std::span<const std::string> path, const Json& value)>;
  /// Same as the parse() above, for documents whose large parts `take` stores elsewhere.
  Json parse(std::string_view text, int kept_levels, const Take& take) const;

  /// Refuses `text` unless it ends with the hash of its bytes, as sealed_text() writes it.
  void require_seal(std::string_view text) const;

  /// The member `key` of `object`. Refuses an `object` that is none or lacks it.
  const Json& member(const Json& object, const char* key) const;
  /// The member `key`; nullptr if it is absent or null.
  const Json* find(const Json& object, const char* key) const;
  /// The member `key`, which must be a whole number from `least` to `most`.
  int64_t integer(const Json& object, const char* key, int64_t least, int64_t most) const;
  double number(const Json& object, const char* key) const;
  /// The member `key`, which must be a text of at most `most_bytes` bytes.
  std::string text(const Json& object, const char* key, size_t most_bytes) const;
  bool flag(const Json& object, const char* key) const;
  /// The member `key`, which must be a list of `least` to `most` members.
  const Json& list(const Json& object, const char* key, int64_t least, int64_t most) const;

 private:
  std::string name_;
  ExitCode refusal_;
};

}  // namespace ripstop
