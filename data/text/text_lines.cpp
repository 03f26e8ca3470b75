#include "data/text/text_lines.h"

#include <optional>

#include "data/text/json_reader.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t") == std::string::npos;
}

bool is_json_object(const std::string& line) {
  return line[line.find_first_not_of(" \t")] == '{' && nlohmann::json::accept(with_nulls_for_nan(line));
}

std::string text_of(const std::string& line, const TextLines& lines, std::vector<std::string>* ids,
                    const std::string& field) {
  // An ordered object would take quadratic time for many keys.
  const auto object = nlohmann::json::parse(with_nulls_for_nan(line), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) fail(ExitCode::kInputData, "{}: not a JSON object", lines.place());
  const auto text = object.find(field);
  if (text == object.end())
    fail(ExitCode::kInputData, "{}: no field '{}'; the line has {}", lines.place(), field,
         shown_names(object));
  if (!text->is_string())
    fail(ExitCode::kInputData, "{}: '{}' is of type {}, expected a string", lines.place(), field,
         text->type_name());
  if (ids == nullptr) return *text;
  std::string& id = ids->emplace_back();
  // Lists and objects stay text: the JSON library would write them recursively.
  for (const auto& [name, value] : members_of(line))
    if (name == "id") id = object["id"].is_string() ? object["id"].dump() : std::string(value);
  return *text;
}

}  // namespace

bool TextLines::next(std::string& line) {
  if (!input_.next(line)) return false;
  if (line.ends_with('\r')) line.pop_back();
  if (const std::optional<int64_t> bad = invalid_utf8(line))
    fail(ExitCode::kInputData, "{}: invalid UTF-8 at byte {}", place(), *bad + 1);
  return true;
}

std::vector<std::string> read_summaries(const std::string& path, std::vector<std::string>* ids,
                                        const std::string& field) {
  TextLines lines(path);
  std::vector<std::string> texts;
  std::optional<bool> json;
  for (std::string line; lines.next(line);) {
    if (!json && !is_blank(line)) {
      json = is_json_object(line);  // decides for the whole file
      if (*json) texts.clear();     // drop the blank lines before it
    }
    if (!json.value_or(false)) {
      texts.push_back(line);
    } else if (!is_blank(line)) {
      texts.push_back(text_of(line, lines, ids, field));
    }
  }
  if (texts.empty()) fail(ExitCode::kInputData, "{} has no text", lines.name());
  return texts;
}

}  // namespace ripstop
