// Reads a few fields of a JSON object of unknown origin without building the object in memory.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

enum class JsonType { kNull, kBoolean, kNumber, kString, kArray, kObject };
/// "null", "a boolean", "a number", "a string", "an array", "an object".
std::string_view to_string(JsonType type);

/// One member of an object. Only strings and whole numbers are kept: `text` of any other is empty.
struct JsonField {
  std::string text;
  JsonType type = JsonType::kNull;
};

/// Reads the members of the object `json` whose names are in `names`. Returns false, and the reason in
/// `error`, if `json` is not JSON (RFC 8259), is not one object, has a name twice, or nests deeper than 32.
bool read_json_fields(std::string_view json, const std::vector<std::string>& names,
                      std::map<std::string, JsonField>& fields, std::string& error);

/// The names of the members of the object `json`, in their order; those before the first fault if it has one.
std::vector<std::string> json_field_names(std::string_view json);

/// Reads an object of arrays of strings, such as the official split file of XSum. Calls `each(name, text)`
/// for every string. Returns false and the reason in `error`, as above.
bool read_json_string_lists(std::string_view json,
                            const std::function<void(const std::string&, const std::string&)>& each,
                            std::string& error);

}  // namespace ripstop
