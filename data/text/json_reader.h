// JsonReader: checked access to a JSON document from outside, such as a manifest or a line of JSONL.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "model/core/error.h"

namespace ripstop {

/// `text` with a space for each control character, because a message is one line.
std::string in_one_line(std::string text);

/// `json` as text, in one line if `indent` is negative. Bytes that are not UTF-8 become U+FFFD.
std::string text_of_json(const nlohmann::ordered_json& json, int indent = -1);

/// Reads one document. Throws only Error(`refusal`), whose message begins with `name`, the file's name for
/// people.
class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  JsonReader(std::string name, ExitCode refusal) : name_(std::move(name)), refusal_(refusal) {}

  /// Throws "`name`: " and the text that fmt formats, in one line.
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_with("", format, std::forward<Args>(args)...);
  }
  /// Refuses with a hint.
  template <class... Args>
  [[noreturn]] void refuse_with(const std::string& hint, fmt::format_string<Args...> format,
                                Args&&... args) const {
    throw Error(refusal_, name_ + ": " + in_one_line(fmt::format(format, std::forward<Args>(args)...)), hint);
  }

  /// Parses `text`. Refuses it if it is not JSON (RFC 8259), not an object, nests deeper than 32 levels, or
  /// has a key twice in one object.
  Json parse(std::string_view text) const;

  /// A required member.
  const Json& member(const Json& object, const char* key) const;
  /// An optional member; nullptr if it is absent or null.
  const Json* find(const Json& object, const char* key) const;
  /// A whole number from `least` to `most`.
  int64_t integer(const Json& object, const char* key, int64_t least, int64_t most) const;
  double number(const Json& object, const char* key) const;
  /// A text of at most `most_bytes`. The limit keeps messages and file names short.
  std::string text(const Json& object, const char* key, size_t most_bytes) const;
  bool flag(const Json& object, const char* key) const;
  /// A list of `least` to `most` members.
  const Json& list(const Json& object, const char* key, int64_t least, int64_t most) const;

 private:
  std::string name_;
  ExitCode refusal_;
};

}  // namespace ripstop
