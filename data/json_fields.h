// Reads a few fields of a JSON object of unknown origin without building the object in memory.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// The text of one member of an object. Only strings and whole numbers are kept; `is_string` tells them
/// apart.
struct JsonField {
  std::string text;
  bool is_string = false;
};

/// Reads the members of the object `json` whose names are in `names`. Returns false, and the reason in
/// `error`, if `json` is not JSON (RFC 8259), is not one object, has a name twice, or nests deeper than 32. A
/// member that is neither a string nor a whole number gets an empty `text` and is_string false.
bool read_json_fields(std::string_view json, const std::vector<std::string>& names,
                      std::map<std::string, JsonField>& fields, std::string& error);

/// Reads an object of arrays of strings, such as the official split file of XSum. Calls `each(name, text)`
/// for every string. Returns false and the reason in `error`, as above.
bool read_json_string_lists(std::string_view json,
                            const std::function<void(const std::string&, const std::string&)>& each,
                            std::string& error);

}  // namespace ripstop
