// JsonReader: checked access to a JSON document of unknown origin, such as a manifest.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "model/core/error.h"

namespace ripstop {

/// `text` with a space for each control character: a message is one line, whatever a file holds.
std::string in_one_line(std::string text);

/// `json` as text, in one line if `indent` is negative. Bytes that are no UTF-8 become U+FFFD.
std::string text_of_json(const nlohmann::ordered_json& json, int indent = -1);

/// Reads one document. Every error is an Error(`refusal`) that begins with `name`, as people know the file.
class JsonReader {
 public:
  using Json = nlohmann::ordered_json;

  JsonReader(std::string name, ExitCode refusal) : name_(std::move(name)), refusal_(refusal) {}

  /// Throws "`name`: " and the text formatted by fmt, in one line.
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

  /// The object that `text` is. Refuses what is not JSON (RFC 8259), nests deeper than 16 levels, or has a
  /// key twice.
  Json parse(std::string_view text) const;

  /// A member that must be there.
  const Json& member(const Json& object, const char* key) const;
  /// A member that may be absent or null: then a null pointer.
  const Json* find(const Json& object, const char* key) const;
  /// A whole number from `least` to `most`.
  int64_t integer(const Json& object, const char* key, int64_t least, int64_t most) const;
  double number(const Json& object, const char* key) const;
  /// A text of at most `most_bytes`: limits keep errors and file names short, whatever the document holds.
  std::string text(const Json& object, const char* key, size_t most_bytes) const;
  bool flag(const Json& object, const char* key) const;
  /// A list of `least` to `most` members.
  const Json& list(const Json& object, const char* key, int64_t least, int64_t most) const;

 private:
  std::string name_;
  ExitCode refusal_;
};

}  // namespace ripstop
