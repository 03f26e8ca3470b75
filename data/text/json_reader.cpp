#include "data/text/json_reader.h"

#include <algorithm>
#include <set>
#include <vector>

#include "data/files/hash.h"
#include "data/text/utf8.h"

namespace ripstop {
namespace {

constexpr size_t kShownBytes = 100;  // most of a key in a message; of a parser's error twice as many

/// The end of a sealed_text(), from the comma before "hash" on. `body`: all bytes before the comma.
std::string seal_of(std::string_view body) {
  StreamHash hash;
  hash.update(body);
  return fmt::format(",\n \"hash\": \"xxh3-128:{}\"\n}}\n", hash.hex());
}

/// The index after the closing quote of the JSON string whose opening quote is at `begin`.
size_t end_of_string(std::string_view json, size_t begin) {
  size_t end = begin + 1;
  while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
  return end + 1;
}

}  // namespace

std::string text_of_json(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string sealed_text(const nlohmann::ordered_json& object) {
  std::string body = text_of_json(object, 1);
  body.resize(body.size() - 2);  // drops the last "\n}", which seal_of() adds again
  return body + seal_of(body);
}

void JsonReader::require_seal(std::string_view text) const {
  const size_t seal_bytes = seal_of("").size();
  if (text.size() <= seal_bytes) refuse("has {} bytes: it is cut short", text.size());
  const std::string_view body = text.substr(0, text.size() - seal_bytes);
  if (text.substr(body.size()) != seal_of(body))
    refuse("does not end with the hash of its bytes: it is damaged");
}

std::string with_nulls_for_nan(std::string_view json) {
  std::string result;
  bool in_text = false;
  for (size_t at = 0; at < json.size(); ++at) {
    if (json[at] == '"') in_text = !in_text;
    result += json[at];
    if (in_text && json[at] == '\\' && at + 1 < json.size()) result += json[++at];
    if (in_text) continue;
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (json.substr(at).starts_with(word)) {
        result.replace(result.size() - 1, 1, "null");
        at += word.size() - 1;
        break;
      }
  }
  return result;
}

std::vector<std::pair<std::string, std::string_view>> members_of(std::string_view json) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::vector<std::pair<std::string, std::string_view>> members;
  std::string_view name;
  size_t value = 0;  // where the value of `name` begins; 0: no colon yet
  int depth = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (depth == 1 && value != 0 && (c == ',' || c == '}')) {
      const size_t end = json.find_last_not_of(kSpace, i - 1) + 1;
      members.emplace_back(nlohmann::json::parse(name), json.substr(value, end - value));
      value = 0;
    }
    if (c == ':' && depth == 1) value = json.find_first_not_of(kSpace, i + 1);
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c != '"') continue;
    const size_t end = end_of_string(json, i);
    if (value == 0) name = json.substr(i, end - i);
    i = end - 1;
  }
  return members;
}

JsonReader::Json JsonReader::parse(std::string_view text, int kept_levels) const {
  return parse(text, kept_levels,
               [](Json::parse_event_t, std::span<const std::string>, const Json&) { return false; });
}

JsonReader::Json JsonReader::parse(std::string_view text, int kept_levels, const Take& take) const {
  // An ordered object compares each new key with all its keys, so the keys of large objects are limited.
  constexpr size_t kMostKeys = 20'000, kSmallObject = 256;
  size_t of_large = 0;
  // Programs differ on which of two equal keys they use, so refuse a key that occurs twice.
  std::vector<std::set<std::string>> keys;  // by depth: keys of the latest object there
  std::vector<std::string> path;
  const auto check = [&](int depth, Json::parse_event_t event, Json& value) {
    using Event = Json::parse_event_t;
    if (depth > kMostLevels) refuse("nests deeper than {} levels", kMostLevels);
    path.resize(static_cast<size_t>(depth));
    if (event == Event::key) path.back() = value.get<std::string>();
    const bool taken = take(event, path, value);
    if (event == Event::object_start) {
      keys.resize(static_cast<size_t>(depth));
      keys.emplace_back();
    }
    if (event == Event::key) {
      std::set<std::string>& beside = keys[static_cast<size_t>(depth) - 1];
      if (!beside.insert(path.back()).second) refuse("has '{}' twice", begin_of(path.back(), kShownBytes));
      if (!taken && beside.size() > kSmallObject && ++of_large > kMostKeys)
        refuse("has more than {} keys in large objects", kMostKeys);
    }
    return !taken && depth <= kept_levels;
  };
  try {
    Json document = Json::parse(text.begin(), text.end(), check);
    if (!document.is_object()) refuse("is not a JSON object");
    return document;
  } catch (const Json::parse_error& error) {
    const std::string what = error.what();
    if (text.starts_with("version https://git-lfs"))
      refuse_with("git lfs pull, in its directory", "is a pointer of Git LFS, not the file");
    const std::string_view at = text.substr(std::min(text.size(), std::max<size_t>(error.byte, 1) - 1));
    const bool is_nan = at.starts_with("NaN") || at.starts_with("Infinity");
    // Keep the REASON of "[json.exception.parse_error.101] parse error at line 1, column 3: REASON".
    refuse_with(is_nan ? "NaN and Infinity are Python's: JSON has null or a finite number there" : "",
                "is not JSON at byte {}: {}", error.byte,
                begin_of(what.substr(what.find(": ") + 2), 2 * kShownBytes));
  } catch (const Json::exception& error) {
    refuse("is not JSON: {}", begin_of(error.what(), 2 * kShownBytes));
  }
}

const JsonReader::Json& JsonReader::member(const Json& object, const char* key) const {
  if (!object.is_object()) refuse("has a {}, an object with '{}' was expected", object.type_name(), key);
  const auto found = object.find(key);
  if (found == object.end()) refuse("has no '{}'", key);
  return *found;
}

const JsonReader::Json* JsonReader::find(const Json& object, const char* key) const {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

int64_t JsonReader::integer(const Json& object, const char* key, int64_t least, int64_t most) const {
  const Json& value = member(object, key);
  // Parsed numbers without a minus are unsigned, and may not fit int64_t.
  const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(most)
                                               : value.is_number_integer() && value.get<int64_t>() <= most;
  if (!fits || value.get<int64_t>() < least)
    refuse("'{}' must be a whole number from {} to {}", key, least, most);
  return value.get<int64_t>();
}

double JsonReader::number(const Json& object, const char* key) const {
  const Json& value = member(object, key);
  if (!value.is_number()) refuse("'{}' must be a number", key);
  return value.get<double>();
}

std::string JsonReader::text(const Json& object, const char* key, size_t most_bytes) const {
  const Json& value = member(object, key);
  if (!value.is_string()) refuse("'{}' must be a text", key);
  std::string text = value.get<std::string>();
  if (text.size() > most_bytes)
    refuse("'{}' has {} bytes, at most {} are allowed", key, text.size(), most_bytes);
  return text;
}

bool JsonReader::flag(const Json& object, const char* key) const {
  const Json& value = member(object, key);
  if (!value.is_boolean()) refuse("'{}' must be true or false", key);
  return value.get<bool>();
}

const JsonReader::Json& JsonReader::list(const Json& object, const char* key, int64_t least,
                                         int64_t most) const {
  const Json& value = member(object, key);
  if (!value.is_array()) refuse("'{}' must be a list", key);
  const int64_t size = static_cast<int64_t>(value.size());
  if (size < least || size > most)
    refuse("'{}' has {} members, {} to {} are allowed", key, size, least, most);
  return value;
}

}  // namespace ripstop
