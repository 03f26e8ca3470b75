// FieldWriter and FieldReader write structs as JSON objects and read them back. One function lists the fields
// for writer and reader: each key once, with its member and, if need be, the limits that the reader checks.
// Usually the function is a member of the struct:
//
//   static void fields(auto& self, auto& field) {
//     field("metric", self.metric);
//     field("step", self.step, 0, kMostSteps);
//   }
#pragma once
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "data/text/json_reader.h"
#include "model/core/words.h"

namespace ripstop {

template <class T>
concept HasFields = std::is_class_v<T> && requires(T& value, int& any) {
  T::fields(value, any);
};

/// Writes members in the order of the calls. Ignores limits. A number that is not finite becomes null when
/// the JSON is printed. Text that is not UTF-8 is not changed.
class FieldWriter {
 public:
  using Json = JsonReader::Json;

  template <class T>
  static Json to_json(const T& value) {
    if constexpr (HasFields<T>)
      return object_of([&](auto& field) { T::fields(value, field); });
    else if constexpr (HasWords<T>)
      return to_string(value);
    else
      return value;
  }
  template <class T>
  static Json to_json(const std::optional<T>& value) {
    return value ? to_json(*value) : Json(nullptr);
  }
  template <HasFields T>
  static Json to_json(const std::vector<T>& values) {
    Json list = Json::array();
    for (const T& value : values) list.push_back(to_json(value));
    return list;
  }

  void operator()(const char* key, const auto& value, auto...) { json[key] = to_json(value); }
  /// Leaves the key out if the optional has no value.
  void if_known(const char* key, const auto& optional) {
    if (optional) (*this)(key, *optional);
  }
  /// Writes a value that follows from other fields. Readers ignore it.
  void derived(const char* key, const auto& value) { (*this)(key, value); }
  /// Writes values with four significant digits, or whole from 1000 on, to keep lists of many nodes short.
  void rounded(const char* key, std::vector<double> values) {
    for (double& value : values) {
      const double unit = value > 0 ? std::pow(10.0, std::floor(std::log10(value)) - 3) : 1;
      // 3 / 10 is 0.3, but 3 * 0.1 is 0.30000000000000004.
      value = unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value);
    }
    (*this)(key, values);
  }
  void word(const char* key, auto value, const auto& words) {
    json[key] = words.at(static_cast<size_t>(value));
  }
  void flags(const char* key, const auto& flags, const auto& words) {
    Json& list = json[key] = Json::array();
    for (size_t i = 0; i < words.size(); ++i)
      if (flags[i]) list.push_back(words[i]);
  }
  void group(const char* key, auto&& fields) { json[key] = object_of(fields); }
  void list(const char* key, auto& values, int64_t, int64_t, auto&& fields) {
    json[key] = object_of([&](auto& field) { field.elements(values, fields); });
  }
  void elements(auto& values, auto&& fields) {
    json = Json::array();
    for (auto& value : values) json.push_back(object_of([&](auto& field) { fields(field, value); }));
  }

  Json json = Json::object();

 private:
  static Json object_of(auto&& fields) {
    FieldWriter writer;
    fields(writer);
    return std::move(writer.json);
  }
};

/// Reads the members of a JSON object. Refuses bad values with the Error of `reader`.
class FieldReader {
 public:
  using Json = JsonReader::Json;
  static constexpr size_t kMostTextBytes = 256;
  /// A text whose limit is at most this many bytes is read as one line (in_one_line).
  static constexpr size_t kMostLineBytes = 4096;
  /// The default limit of integers, so low that a few of them can be added without an overflow.
  static constexpr int64_t kMost = int64_t{1} << 60;
  enum class Mode {
    kExact,         ///< refuses unknown members (in end()), and absent or bad ones
    kSkipsUnknown,  ///< accepts unknown members, refuses absent or bad ones
    /// Refuses a wrong type, an unknown word and an integer beyond kMost or its type. An absent member leaves
    /// the value unchanged, but word(), flags() and list() refuse it. null is read as NaN for a double.
    kLenient
  };

  /// `reader` and `json` must outlive this object.
  FieldReader(const JsonReader& reader, const Json& json, Mode mode = Mode::kExact)
      : reader_(reader), json_(json), mode_(mode) {}
  /// Sets the mode to kSkipsUnknown, for this object and for objects inside it.
  void skip_unknown() { mode_ = Mode::kSkipsUnknown; }

  /// Reads a field. `limits`: `least` and `most` of an integer (0 and kMost by default), or `most_bytes` of a
  /// text (kMostTextBytes by default).
  void operator()(const char* key, auto& value, auto... limits) {
    if (is_wanted(key)) read(key, value, limits...);
  }
  void if_known(const char* key, auto& optional) { (*this)(key, optional); }
  void derived(const char* key, const auto&) { known(key); }
  void rounded(const char* key, std::vector<double>& values) { (*this)(key, values); }
  /// Reads one of `words`; words[i] stands for the enumerator with the value i.
  template <class Enum>
  void word(const char* key, Enum& value, const auto& words) {
    value = static_cast<Enum>(index(key, reader_.member(json_, known(key)), words));
  }
  /// Reads a list of one or more of `words`: flags[i] becomes true if the list has words[i].
  void flags(const char* key, auto& flags, const auto& words) {
    flags = {};
    for (const Json& each : reader_.list(json_, known(key), 1, std::ssize(words)))
      flags[index(key, each, words)] = true;
  }
  void group(const char* key, auto&& fields) {
    if (is_wanted(key)) read_inside(reader_.member(json_, key), fields);
  }
  /// Reads a list of `least` to `most` objects.
  void list(const char* key, auto& values, int64_t least, int64_t most, auto&& fields) {
    read_inside(reader_.list(json_, known(key), least, most),
                [&](auto& field) { field.elements(values, fields); });
  }
  /// Same as list(), if the JSON itself is the list.
  void elements(auto& values, auto&& fields) {
    if (!json_.is_array()) reader_.refuse("has a {} where a list was expected", json_.type_name());
    values.clear();
    for (const Json& each : json_)
      read_inside(each, [&](auto& field) { fields(field, values.emplace_back()); });
  }
  /// Keeps end() from refusing the member `key`. Returns `key`.
  const char* known(const char* key) {
    if (mode_ == Mode::kExact) known_.insert(key);
    return key;
  }
  /// Ends the fields: in mode kExact, refuses members that no call has named.
  void end() const {
    if (mode_ != Mode::kExact || !json_.is_object()) return;
    for (const auto& [key, value] : json_.items())
      if (!known_.contains(key)) reader_.refuse("has an unknown '{}'", key);
  }

 private:
  bool is_lenient() const { return mode_ == Mode::kLenient; }
  bool is_wanted(const char* key) {
    known(key);
    return !is_lenient() || json_.contains(key);
  }

  void read(const char* key, std::integral auto& value, int64_t least = 0, int64_t most = kMost) {
    using Limits = std::numeric_limits<std::remove_cvref_t<decltype(value)>>;
    if (is_lenient()) least = -kMost, most = kMost;
    least = std::max<int64_t>(least, Limits::min()), most = std::min<uint64_t>(most, Limits::max());
    value = static_cast<std::remove_cvref_t<decltype(value)>>(reader_.integer(json_, key, least, most));
  }
  void read(const char* key, double& value) {
    const bool is_null = is_lenient() && reader_.find(json_, key) == nullptr;
    value = is_null ? std::numeric_limits<double>::quiet_NaN() : reader_.number(json_, key);
  }
  void read(const char* key, bool& value) { value = reader_.flag(json_, key); }
  void read(const char* key, std::string& value, size_t most_bytes = kMostTextBytes) {
    value = reader_.text(json_, key, is_lenient() ? SIZE_MAX : most_bytes);
    // Short texts are names and facts that verbs print: an escape sequence must not reach a terminal.
    if (most_bytes <= kMostLineBytes) value = in_one_line(std::move(value));
  }
  void read(const char* key, HasWords auto& value) {
    word(key, value, kWords<std::remove_cvref_t<decltype(value)>>);
  }
  template <HasFields T>
  void read(const char* key, T& value) {
    group(key, [&](auto& field) { T::fields(value, field); });
  }
  template <class T>
  void read(const char* key, std::optional<T>& value) {
    value.reset();
    if (!reader_.member(json_, key).is_null()) read(key, value.emplace());
  }
  template <class T>
  void read(const char* key, std::vector<T>& values) {
    if constexpr (HasFields<T>)
      list(key, values, 0, INT64_MAX, [](auto& field, T& value) { T::fields(value, field); });
    else
      try {
        values = reader_.member(json_, key).template get<std::vector<T>>();
      } catch (const Json::exception&) {
        reader_.refuse("'{}' must be a list with elements of one type", key);
      }
  }

  void read_inside(const Json& json, auto&& fields) const {
    FieldReader inside(reader_, json, mode_);
    fields(inside);
    inside.end();
  }
  size_t index(const char* key, const Json& json, const auto& words) const {
    const auto found = std::ranges::find(words, json.is_string() ? json.get<std::string>() : std::string());
    if (found == words.end()) reader_.refuse("'{}' must be {}", key, fmt::join(words, " or "));
    return static_cast<size_t>(found - words.begin());
  }

  const JsonReader& reader_;
  const Json& json_;
  Mode mode_;
  std::set<std::string_view> known_;
};

}  // namespace ripstop
