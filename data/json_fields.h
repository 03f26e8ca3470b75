// A few fields of a JSON object of unknown origin, read without building it in memory.
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

/// Members of the object `json` whose names are in `names`. Values may nest 32 deep; a name given twice,
/// anything but one object, and anything that is not JSON (RFC 8259) is refused: returns false and says why
/// in `error`. Members that are neither string nor whole number come with an empty `text` and is_string
/// false.
bool read_json_fields(std::string_view json, const std::vector<std::string>& names,
                      std::map<std::string, JsonField>& fields, std::string& error);

/// Reads an object of arrays of strings, as the official split file of XSum is one: calls `each(name, text)`
/// for every string. Returns false and says why in `error`, as above.
bool read_json_string_lists(std::string_view json,
                            const std::function<void(const std::string&, const std::string&)>& each,
                            std::string& error);

}  // namespace ripstop
