#include "data/text/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

namespace ripstop {
namespace {

using Json = nlohmann::json;
/// Data files nest a few levels; code that walks a document later may recurse.
constexpr int kDeepest = 32;

/// Keeps count of the depth and refuses what no data file has. nlohmann's parser itself is iterative.
class BoundedSax : public nlohmann::json_sax<Json> {
 public:
  std::string error;

  bool null() override { return scalar(JsonType::kNull, ""); }
  bool boolean(bool) override { return scalar(JsonType::kBoolean, ""); }
  // With their digits, because ids may be numbers.
  bool number_integer(number_integer_t value) override {
    return scalar(JsonType::kNumber, std::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar(JsonType::kNumber, std::to_string(value));
  }
  bool number_float(number_float_t, const string_t&) override { return scalar(JsonType::kNumber, ""); }
  bool string(string_t& value) override { return scalar(JsonType::kString, std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(JsonType::kObject); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(JsonType::kArray); }
  bool end_array() override { return close(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& problem) override {
    const std::string text = problem.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 3: ..." -> what follows the place
    const size_t colon = text.find(": ");
    error = fmt::format("not JSON at byte {}: {}", position,
                        colon == std::string::npos ? text : text.substr(colon + 2));
    std::replace(error.begin(), error.end(), '\n', ' ');
    // The parser quotes the text it stumbled over, which may be a whole article.
    if (error.size() > 200) error.resize(200);
    return false;
  }

 protected:
  int depth = 0;
  bool refuse(std::string why) {
    error = std::move(why);
    return false;
  }
  /// Called for each value inside the document; `depth` is that of what holds it. `text` is the value of
  /// strings and whole numbers.
  virtual bool value(JsonType type, std::string&& text) = 0;

 private:
  bool scalar(JsonType type, std::string&& text) {
    return depth > 0 ? value(type, std::move(text)) : refuse_document(type);
  }
  bool open(JsonType type) {
    if (depth == 0 && type != JsonType::kObject) return refuse_document(type);
    if (depth == kDeepest) return refuse(fmt::format("JSON nests deeper than {}", kDeepest));
    if (depth > 0 && !value(type, "")) return false;
    ++depth;
    return true;
  }
  bool refuse_document(JsonType type) {
    return refuse(fmt::format("not a JSON object but {}", to_string(type)));
  }
  bool close() {
    --depth;
    return true;
  }
};

/// Keeps wanted members of the outermost object; skips what lies deeper without storing it.
class FieldSax final : public BoundedSax {
 public:
  FieldSax(const std::vector<std::string>& names, std::map<std::string, JsonField>& fields)
      : names_(names), fields_(fields) {}
  bool key(string_t& name) override {
    if (depth != 1) return true;
    // JSON allows this, and programs differ on which value counts. So it is an error, also for other fields.
    if (!seen_.insert(name).second) return refuse(fmt::format("field '{}' is there twice", name));
    const bool wanted = std::find(names_.begin(), names_.end(), name) != names_.end();
    current_ = wanted ? &fields_[name] : nullptr;
    return true;
  }

 private:
  // Only members of the outermost object: a "summary" deeper in the line is another thing.
  bool value(JsonType type, std::string&& text) override {
    if (depth == 1 && current_ != nullptr) *current_ = {std::move(text), type};
    return true;
  }
  const std::vector<std::string>& names_;
  std::map<std::string, JsonField>& fields_;
  std::set<std::string> seen_;
  JsonField* current_ = nullptr;
};

/// Hands on the strings of an object of arrays. Keeps none: XSum's file has 227,000.
class ListSax final : public BoundedSax {
 public:
  explicit ListSax(const std::function<void(const std::string&, const std::string&)>& each) : each_(each) {}
  bool key(string_t& name) override {
    if (!seen_.insert(name).second) return refuse(fmt::format("'{}' is there twice", name));
    name_ = name;
    return true;
  }

 private:
  // Depth 1 is the object, depth 2 an array in it.
  bool value(JsonType type, std::string&& text) override {
    if (type != (depth == 1 ? JsonType::kArray : JsonType::kString))
      return refuse("expected an object of arrays of strings");
    if (depth == 2) each_(name_, text);
    return true;
  }
  const std::function<void(const std::string&, const std::string&)>& each_;
  std::set<std::string> seen_;
  std::string name_;
};

/// Collects the names of the outermost object's members.
class NameSax final : public BoundedSax {
 public:
  bool key(string_t& name) override {
    if (depth == 1) names.push_back(name);
    return true;
  }
  std::vector<std::string> names;

 private:
  bool value(JsonType, std::string&&) override { return true; }
};

/// Runs the parser. A stream of events needs no memory for the document, however large it is.
bool parse(std::string_view json, BoundedSax& sax, std::string& error) {
  if (Json::sax_parse(json.begin(), json.end(), &sax)) return true;
  error = sax.error.empty() ? "not JSON" : sax.error;
  return false;
}

}  // namespace

std::string_view to_string(JsonType type) {
  constexpr std::array<std::string_view, 6> kNames = {"null",     "a boolean", "a number",
                                                      "a string", "an array",  "an object"};
  return kNames[static_cast<size_t>(type)];
}

std::vector<std::string> json_field_names(std::string_view json) {
  NameSax sax;
  std::string ignored;
  parse(json, sax, ignored);
  return sax.names;
}

bool read_json_fields(std::string_view json, const std::vector<std::string>& names,
                      std::map<std::string, JsonField>& fields, std::string& error) {
  fields.clear();
  FieldSax sax(names, fields);
  return parse(json, sax, error);
}

bool read_json_string_lists(std::string_view json,
                            const std::function<void(const std::string&, const std::string&)>& each,
                            std::string& error) {
  ListSax sax(each);
  return parse(json, sax, error);
}

}  // namespace ripstop
