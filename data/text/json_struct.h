// One list of fields for a struct and its JSON. A function template names each key once, with the member and
// its limits, and is called with a JsonFieldWriter or a JsonFieldReader:
//
//   template <class Fields>
//   void best_fields(Fields& f, Best& best) {
//     f("metric", best.metric);
//     f("step", best.step, 0, kMostSteps);
//   }
#pragma once
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/json_reader.h"

namespace ripstop {

/// Writes members in the order of the calls. Ignores limits. A text that is not UTF-8 stays as it is.
class JsonFieldWriter {
 public:
  using Json = JsonReader::Json;

  /// `json` must outlive it.
  explicit JsonFieldWriter(Json& json) : json_(json) {}

  template <class T>
  void operator()(const char* key, const T& value, auto...) {
    json_[key] = value;
  }
  template <class Enum, size_t n>
  void word(const char* key, Enum value, const std::array<std::string_view, n>& words) {
    json_[key] = words.at(static_cast<size_t>(value));
  }
  template <size_t n>
  void flags(const char* key, const std::array<bool, n>& flags,
             const std::array<std::string_view, n>& words) {
    Json& list = json_[key] = Json::array();
    for (size_t i = 0; i < n; ++i)
      if (flags[i]) list.push_back(words[i]);
  }
  void group(const char* key, auto&& fields) { write(json_[key], fields); }
  template <class T>
  void optional(const char* key, std::optional<T>& value, auto&& fields) {
    if (value)
      write(json_[key], [&](auto& f) { fields(f, *value); });
    else
      json_[key] = nullptr;
  }
  template <class T>
  void list(const char* key, std::vector<T>& values, int64_t, int64_t, auto&& fields) {
    write(json_[key], [&](auto& f) { f.elements(values, fields); });
  }
  template <class T>
  void elements(std::vector<T>& values, auto&& fields) {
    json_ = Json::array();
    for (T& value : values) write(json_.emplace_back(), [&](auto& f) { fields(f, value); });
  }

 private:
  static void write(Json& json, auto&& fields) {
    JsonFieldWriter writer(json);
    fields(writer);
  }

  Json& json_;
};

/// Reads members, all of which must be there, and checks them against their limits. Refuses as `reader` does.
class JsonFieldReader {
 public:
  using Json = JsonReader::Json;
  static constexpr size_t kMostTextBytes = 256;

  /// Both must outlive it.
  JsonFieldReader(const JsonReader& reader, const Json& json) : reader_(reader), json_(json) {}
  /// From now on end() refuses nothing, in this object and in those inside it.
  void skip_unknown() { skips_unknown_ = true; }

  void operator()(const char* key, int64_t& value, int64_t least = 0, int64_t most = INT64_MAX) {
    value = reader_.integer(json_, known(key), least, most);
  }
  void operator()(const char* key, double& value) { value = reader_.number(json_, known(key)); }
  void operator()(const char* key, bool& value) { value = reader_.flag(json_, known(key)); }
  void operator()(const char* key, std::string& value, size_t most_bytes = kMostTextBytes) {
    value = reader_.text(json_, known(key), most_bytes);
  }
  /// The value number i of an enum, from words[i].
  template <class Enum, size_t n>
  void word(const char* key, Enum& value, const std::array<std::string_view, n>& words) {
    value = static_cast<Enum>(index(key, reader_.member(json_, known(key)), words));
  }
  /// One or more of `words`, as a list of texts.
  template <size_t n>
  void flags(const char* key, std::array<bool, n>& flags, const std::array<std::string_view, n>& words) {
    flags = {};
    for (const Json& each : reader_.list(json_, known(key), 1, n)) flags[index(key, each, words)] = true;
  }
  /// An object: `fields(f)`.
  void group(const char* key, auto&& fields) { read(reader_.member(json_, known(key)), fields); }
  /// An object or null: `fields(f, *value)`.
  template <class T>
  void optional(const char* key, std::optional<T>& value, auto&& fields) {
    const Json& json = reader_.member(json_, known(key));
    value.reset();
    if (!json.is_null()) read(json, [&](auto& f) { fields(f, value.emplace()); });
  }
  /// A list of `least` to `most` objects: `fields(f, values[i])`.
  template <class T>
  void list(const char* key, std::vector<T>& values, int64_t least, int64_t most, auto&& fields) {
    read(reader_.list(json_, known(key), least, most), [&](auto& f) { f.elements(values, fields); });
  }
  /// Likewise for a list that is an element of a list: this reader's own.
  template <class T>
  void elements(std::vector<T>& values, auto&& fields) {
    if (!json_.is_array()) reader_.refuse("has a {} where a list was expected", json_.type_name());
    values.clear();
    for (const Json& each : json_) read(each, [&](auto& f) { fields(f, values.emplace_back()); });
  }
  /// Has end() know a member that is read elsewhere.
  const char* known(const char* key) {
    known_.insert(key);
    return key;
  }
  /// After the last field: refuses members that were not asked for.
  void end() const {
    if (skips_unknown_ || !json_.is_object()) return;
    for (const auto& [key, value] : json_.items())
      if (!known_.contains(key)) reader_.refuse("has an unknown '{}'", key);
  }

 private:
  void read(const Json& json, auto&& fields) const {
    JsonFieldReader reader(reader_, json);
    reader.skips_unknown_ = skips_unknown_;
    fields(reader);
    reader.end();
  }
  template <size_t n>
  size_t index(const char* key, const Json& json, const std::array<std::string_view, n>& words) const {
    const auto found = std::ranges::find(words, json.is_string() ? json.get<std::string>() : std::string());
    if (found == words.end()) reader_.refuse("'{}' must be {}", key, fmt::join(words, " or "));
    return static_cast<size_t>(found - words.begin());
  }

  const JsonReader& reader_;
  const Json& json_;
  bool skips_unknown_ = false;
  std::set<std::string_view> known_;
};

}  // namespace ripstop
