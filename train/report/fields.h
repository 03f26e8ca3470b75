// Structs to JSON objects and back. Each struct names its keys once, in a static member `fields`:
//
//   template <class Self, class Fields>
//   static void fields(Self& self, Fields& field) {
//     field("tokens", self.tokens);
//   }
//
// FieldWriter and FieldReader are what such a list is called with.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

template <class T>
concept HasFields = std::is_class_v<T> && requires(T& value, int& any) {
  T::fields(value, any);
};

/// Writes fields into an object, in the order of the calls. A number that is not finite becomes null.
class FieldWriter {
 public:
  using Json = nlohmann::ordered_json;

  template <class T>
  static Json to_json(const T& value) {
    if constexpr (HasFields<T>) {
      FieldWriter writer;
      T::fields(value, writer);
      return writer.object;
    } else {
      return value;
    }
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

  template <class T>
  void operator()(std::string_view key, const T& value) {
    object[std::string(key)] = to_json(value);
  }
  /// Leaves the key out if there is no value.
  template <class T>
  void if_known(std::string_view key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  /// A value that follows from other fields: written, but not read.
  template <class T>
  void derived(std::string_view key, const T& value) {
    (*this)(key, value);
  }
  /// To four digits: a list with a number for each of a thousand nodes makes a long line.
  void rounded(std::string_view key, std::vector<double> values) {
    for (double& value : values) {
      const double unit = value > 0 ? std::pow(10.0, std::floor(std::log10(value)) - 3) : 1;
      // Divided by a whole number, as 0.1 times a whole number has digits that nobody wrote.
      value = unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value);
    }
    (*this)(key, values);
  }
  /// An object inside the object, whose fields `list(writer)` names.
  template <class List>
  void group(std::string_view key, List list) {
    FieldWriter writer;
    list(writer);
    (*this)(key, writer.object);
  }

  Json object = Json::object();
};

/// Reads fields of an object. A key that is absent leaves its member as it is, and other keys are passed
/// over: other versions have other keys. Throws Error(kStorage) or Json::exception if a value has another
/// type.
class FieldReader {
 public:
  using Json = nlohmann::ordered_json;

  explicit FieldReader(const Json& object) : object_(object) {}

  /// nlohmann would also take a fraction, or a number that int64_t cannot hold, and return another number.
  static int64_t integer(const Json& json) {
    if (!json.is_number_integer() ||
        (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
      fail(ExitCode::kStorage, "a number that is no integer");
    return json.get<int64_t>();
  }

  template <class T>
  void operator()(std::string_view key, T& value) const {
    if (const auto found = object_.find(std::string(key)); found != object_.end()) read(*found, value);
  }
  template <class T>
  void if_known(std::string_view key, std::optional<T>& value) const {
    (*this)(key, value);
  }
  template <class T>
  void derived(std::string_view, const T&) const {}
  void rounded(std::string_view key, std::vector<double>& values) const { (*this)(key, values); }
  template <class List>
  void group(std::string_view key, List list) const {
    const auto found = object_.find(std::string(key));
    if (found == object_.end() || !found->is_object()) return;
    FieldReader reader(*found);
    list(reader);
  }

 private:
  template <class T>
  static void read(const Json& json, T& value) {
    if constexpr (HasFields<T>) {
      FieldReader reader(json);
      if (json.is_object()) T::fields(value, reader);
    } else if constexpr (std::is_same_v<T, double>) {
      // null stands for a number that is not finite, as written above.
      value = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      value = static_cast<T>(integer(json));
    } else {
      value = json.get<T>();
    }
  }
  template <class T>
  static void read(const Json& json, std::optional<T>& value) {
    if (json.is_null() || (HasFields<T> && !json.is_object())) return;
    read(json, value.emplace());
  }
  template <HasFields T>
  static void read(const Json& json, std::vector<T>& values) {
    for (const Json& each : json) read(each, values.emplace_back());
  }

  const Json& object_;
};

}  // namespace ripstop
