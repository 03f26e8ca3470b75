#include "data/corpus/corpus_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "data/corpus/corpus_names.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr size_t kShownNames = 12;

// Names of the two fields in other data sets.
constexpr std::array<std::string_view, 9> kDocumentNames = {
    "document", "article", "dialogue", "text", "source", "content", "body", "input", "passage"};
constexpr std::array<std::string_view, 8> kSummaryNames = {"summary",  "highlights", "target", "abstract",
                                                           "headline", "tldr",       "output", "title"};

/// The first of `known` that the line has; "NAME" if it has none.
template <size_t N>
std::string guess(const std::vector<std::string>& names, const std::array<std::string_view, N>& known) {
  for (const std::string_view name : known)
    if (std::find(names.begin(), names.end(), name) != names.end()) return std::string(name);
  return "NAME";
}

/// The command that helps if a line is no JSON object: people have files of one array, or with an object on
/// many lines.
std::string how_to_split(const std::string& line, const CorpusExample& at) {
  const size_t first = line.find_first_not_of(" \t");
  const char begin = first == std::string::npos ? '\0' : line[first];
  if (begin == '[')
    return "one object a line is expected, and this may be an array: " +
           conversion_command(at.file, "jq -c '.[]'", "lines", ".jsonl");
  if (begin == '{' && at.line == 1)
    return "one object a line is expected, and this one may take several: " +
           conversion_command(at.file, "jq -c .", "lines", ".jsonl");
  return "one object a line is expected: {\"document\": \"...\", \"summary\": \"...\"}";
}

}  // namespace

void read_line_fields(const std::string& line, const std::vector<std::string>& names, const CorpusExample& at,
                      std::map<std::string, JsonField>& fields) {
  std::string error;
  if (read_json_fields(line, names, fields, error)) return;
  throw Error(ExitCode::kInputData, fmt::format("{}:{}: {}", at.file, at.line, error),
              how_to_split(line, at));
}

std::string take_text(std::map<std::string, JsonField>& fields, const std::string& field, SourceKind kind,
                      const std::string& line, const CorpusExample& at) {
  const auto found = fields.find(field);
  if (found == fields.end()) {
    std::vector<std::string> names = json_field_names(line);
    std::string hint = "name the field: --document-field " + guess(names, kDocumentNames);
    if (kind == SourceKind::kJsonl) hint += " --summary-field " + guess(names, kSummaryNames);
    const size_t more = names.size() - std::min(names.size(), kShownNames);
    names.resize(names.size() - more);
    throw Error(ExitCode::kInputData,
                fmt::format("{}:{}: field '{}' is missing; the line has {}{}", at.file, at.line, field,
                            names.empty() ? "no fields" : fmt::format("{}", fmt::join(names, ", ")),
                            more > 0 ? fmt::format(" and {} more", more) : ""),
                hint);
  }
  if (found->second.type == JsonType::kNull) return "";
  if (found->second.type != JsonType::kString) {
    fail(ExitCode::kInputData, "{}:{}: field '{}' is {}, expected a string", at.file, at.line, field,
         to_string(found->second.type));
  }
  return std::move(found->second.text);
}

}  // namespace ripstop
