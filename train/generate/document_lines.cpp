#include "train/generate/document_lines.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/process/shell_word.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

// The JSON library writes a value recursively: each level takes stack. No real data comes near this depth.
constexpr int kDeepest = 200;

// The begin of `text`, valid UTF-8, for a message.
std::string begin_of(const std::string& text) {
  constexpr size_t kMostBytes = 40;
  if (text.size() <= kMostBytes) return text;
  size_t bytes = kMostBytes;
  // Not within a character: what follows its first byte is 10xxxxxx.
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  return text.substr(0, bytes) + "...";
}

// What is wrong in a line that begins as an object does.
std::string fault_of(const std::string& line, const Json::parse_error& error) {
  // The library counts from 1, and the end of the line as a byte.
  if (error.byte > line.size())
    return "the line ends within the object: it is cut, or the object goes over several lines, which jq -c . "
           "joins";
  size_t at = std::max<size_t>(error.byte, 1) - 1;
  // Not within a character, as above.
  while (at > 0 && (static_cast<unsigned char>(line[at]) & 0xC0) == 0x80) --at;
  if (std::string_view(error.what()).find("surrogate") != std::string_view::npos)
    return fmt::format(
        "up to byte {}: \\ud800 to \\udfff come in pairs, one half is no character; \\ufffd may stand for it",
        error.byte);
  return fmt::format("no JSON from byte {} on: '{}'", at + 1, begin_of(line.substr(at)));
}

// What was found instead, and what to write. `fault` is that of an object.
[[noreturn]] void refuse_line(const std::string& line, const TextLines& lines, const std::string& fault) {
  const char first = line[line.find_first_not_of(" \t")];
  std::string hint = "write one JSON object a line: {\"document\": \"...\"}";
  if (first == '[') hint += "; an array goes over several lines with jq -c '.[]'";
  if (first == '{' && !fault.empty()) hint = fault;
  throw Error(ExitCode::kInputData, fmt::format("{}: not a JSON object: '{}'", lines.place(), begin_of(line)),
              hint);
}

// Errors name the place in the input. The depth is checked while parsing, before anything recurses.
Json parse_object(const std::string& line, const TextLines& lines) {
  const auto check_depth = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepest)
      fail(ExitCode::kInputData, "{}: nested deeper than {} levels", lines.place(), kDeepest);
    return true;
  };
  try {
    Json object = Json::parse(line, check_depth);
    if (object.is_object()) return object;
  } catch (const Json::parse_error& error) {
    refuse_line(line, lines, fault_of(line, error));
  } catch (const Json::exception&) {
    refuse_line(line, lines, "a number is too large for a 64-bit float");
  }
  refuse_line(line, lines, "");
}

// The path of a field for jq: .article, or .["news-text"] if the name is no identifier.
std::string jq_path(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const bool is_identifier =
      !name.empty() && is_letter(name.front()) &&
      std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
  return is_identifier ? "." + name : ".[" + Json(name).dump() + "]";
}

// The fields that the line has, and how one of them becomes the document.
[[noreturn]] void refuse_fields(const Json& object, const TextLines& lines) {
  constexpr size_t kShown = 12;
  std::string names, text;
  size_t count = 0;
  for (const auto& [name, value] : object.items()) {
    if (++count <= kShown) names += (count == 1 ? "" : ", ") + begin_of(name);
    // The first field of text is a guess, as good as any. A name that is cut cannot be typed.
    if (text.empty() && value.is_string() && name != "id" && name != "summary" && begin_of(name) == name)
      text = name;
  }
  if (count > kShown) names += fmt::format(" and {} more", count - kShown);
  throw Error(ExitCode::kInputData,
              fmt::format("{}: no field 'document'; the line has {}", lines.place(),
                          count == 0 ? "no fields" : names),
              fmt::format("rename the field of the text: jq -c {} IN.jsonl >OUT.jsonl",
                          shell_word(".document = " + (text.empty() ? ".NAME" : jq_path(text)))));
}

}  // namespace

std::optional<DocumentLine> next_document(TextLines& lines) {
  for (std::string line; lines.next(line);) {
    if (line.find_first_not_of(" \t") == std::string::npos) continue;
    const Json object = parse_object(line, lines);
    const auto document = object.find("document");
    if (document == object.end()) refuse_fields(object, lines);
    // As `prepare` has it, a null is an empty document.
    if (document->is_null()) return DocumentLine{line, ""};
    if (!document->is_string())
      fail(ExitCode::kInputData, "{}: 'document' is of type {}, expected a string", lines.place(),
           document->type_name());
    return DocumentLine{line, *document};
  }
  return std::nullopt;
}

std::string with_summary(const std::string& line, const std::string& summary, int64_t cut_tokens) {
  Json object = Json::parse(line);
  if (const auto old = object.find("summary"); old != object.end()) {
    const Json reference = *old;
    object.erase(old);
    // The input had a summary, perhaps by a person. Keep it for scoring.
    if (!object.contains("reference")) object["reference"] = reference;
  }
  object["summary"] = summary;
  // The input may be the output of an earlier call.
  object.erase("cut_tokens");
  if (cut_tokens > 0) object["cut_tokens"] = cut_tokens;
  // A model may write half a UTF-8 character. `replace` makes U+FFFD of it.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ripstop
