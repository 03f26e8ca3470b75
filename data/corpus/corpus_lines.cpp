#include <fmt/format.h>

#include <array>
#include <span>
#include <utility>

#include "data/chat/conversation_json.h"
#include "data/corpus/corpus.h"
#include "data/corpus/corpus_names.h"
#include "data/text/json_reader.h"
#include "data/text/line_input.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

using Json = JsonReader::Json;

/// Plain text is cut before a line that would make a document longer than this: memory stays bounded.
constexpr size_t kMostDocumentBytes = 1 << 20;

// Names that data sets give their document and summary fields.
constexpr std::array<std::string_view, 9> kDocumentNames = {
    "document", "article", "dialogue", "text", "source", "content", "body", "input", "passage"};
constexpr std::array<std::string_view, 8> kSummaryNames = {"summary",  "highlights", "target", "abstract",
                                                           "headline", "tldr",       "output", "title"};

/// The first of `known` that is in `object`; "NAME" if there is none.
std::string guess(const Json& object, std::span<const std::string_view> known) {
  for (const std::string_view name : known)
    if (object.contains(std::string(name))) return std::string(name);
  return "NAME";
}

/// The hint for a refused line, by its text and by the error `why`.
std::string how_to_mend(const std::string& line, const CorpusExample& at, std::string_view why) {
  const std::string_view text = strip(line);
  const char begin = text.empty() ? '\0' : text.front();
  if (begin == '[')
    return "one object a line is expected, and this may be an array: " +
           conversion_command(at.file, "jq -c '.[]'", "lines", ".jsonl");
  if (why.find("surrogate") != std::string_view::npos)
    return "\\ud800 to \\udfff come in pairs, and one half is no character: \\ufffd may stand for it";
  if (why.find("out_of_range") != std::string_view::npos) return "a number is too large for a 64-bit float";
  if (why.find("Git LFS") != std::string_view::npos) return "git lfs pull, in its directory";
  if (text.starts_with("{'")) return "this is Python's print of an object: write each one with json.dumps";
  if (begin == '{' && text.back() != '}' && at.line == 1)
    return "one object a line is expected, and this one may take several: " +
           conversion_command(at.file, "jq -c .", "lines", ".jsonl");
  return "one object a line is expected: {\"document\": \"...\", \"summary\": \"...\"}, or with messages";
}

JsonReader reader_of(const CorpusExample& at) {
  return {fmt::format("{}:{}", at.file, at.line), ExitCode::kInputData};
}

Json parse_line(const std::string& line, const CorpusExample& at, int kept_levels) {
  try {
    return reader_of(at).parse(line, kept_levels);
  } catch (const Error& error) {
    if (const std::string nulled = with_nulls_for_nan(line); nulled != line)
      return parse_line(nulled, at, kept_levels);
    throw Error(error.code(), error.what(), how_to_mend(line, at, error.what()));
  }
}

/// Returns the string `field` of `object`; "" for null. Throws Error(kInputData) for a missing field or
/// another type.
std::string take_text(const Json& object, const std::string& field, bool is_pair, const CorpusExample& at) {
  const auto found = object.find(field);
  if (found == object.end()) {
    std::string hint = "name the field: --document-field " + guess(object, kDocumentNames);
    if (is_pair) hint += " --summary-field " + guess(object, kSummaryNames);
    throw Error(ExitCode::kInputData,
                fmt::format("{}:{}: field '{}' is missing; the line has {}", at.file, at.line, field,
                            shown_names(object)),
                hint);
  }
  if (found->is_null()) return "";
  if (!found->is_string()) {
    fail(ExitCode::kInputData, "{}:{}: field '{}' is of type {}, expected a string", at.file, at.line, field,
         found->type_name());
  }
  return *found;
}

void take_conversation(const Json& object, CorpusExample& example) {
  ReadConversation read = read_conversation(reader_of(example), object);
  example.document = text_of_conversation(read.turns);
  example.conversation = std::move(read.turns);
  example.is_joined = read.is_joined;
  example.not_text = std::move(read.not_text);
}

/// Parses `line` into the contents and id of `example`. Keeps example.id if the line has none, null or "".
void parse_example(const std::string& line, const CorpusSource& source, CorpusExample& example) {
  const bool is_pair = source.kind == SourceKind::kJsonl, is_chat = source.kind == SourceKind::kMessages;
  const Json object = parse_line(line, example, is_chat ? kConversationLevels : 1);
  const bool is_default = source.document_field == "document";
  if (is_chat)
    take_conversation(object, example);
  else
    example.document =
        take_text(object, !is_pair && is_default ? "text" : source.document_field, is_pair, example);
  if (is_pair) example.summary = take_text(object, source.summary_field, is_pair, example);
  const auto id = object.find("id");
  if (id == object.end() || id->is_null() || *id == "") return;
  if (id->is_string()) return void(example.id = id->get<std::string>());
  for (const auto& [name, value] : members_of(line))
    if (name == "id") example.id = in_one_line(std::string(value));
}

void give(CorpusExample& example, const CorpusSource& source, const ExampleSink& sink) {
  if (!example.invalid_utf8)
    example.split = split_of_document(example.split, example.document, source.validation_fraction);
  sink(example);
}

void read_json(LineInput& lines, const CorpusExample& start, const CorpusSource& source,
               const ExampleSink& sink, const std::function<void()>& moved) {
  for (std::string line; lines.next(line);) {
    moved();
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    CorpusExample example = start;
    example.line = lines.line_number();
    // predictions.jsonl shows the id, so that people find the example again.
    example.id = fmt::format("{}-{}", start.id, example.line);
    example.invalid_utf8 = invalid_utf8(line).has_value();
    if (!example.invalid_utf8) parse_example(line, source, example);
    give(example, source, sink);
  }
}

void read_plain(LineInput& lines, const CorpusExample& start, const CorpusSource& source,
                const ExampleSink& sink, const std::function<void()>& moved) {
  CorpusExample example = start;
  const auto flush = [&] {
    if (example.document.empty()) return;
    example.id = example.line == 1 ? start.id : fmt::format("{}-{}", start.id, example.line);
    example.invalid_utf8 = invalid_utf8(example.document).has_value();
    if (example.invalid_utf8) example.document.clear();
    give(example, source, sink);
    example = start;
  };
  for (std::string line; lines.next(line);) {
    moved();
    if (line.ends_with('\r')) line.pop_back();
    if (example.document.size() + line.size() > kMostDocumentBytes) flush();
    if (example.document.empty()) example.line = lines.line_number();
    example.document += line;
    example.document += '\n';
  }
  flush();
}

}  // namespace

void read_lines(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  const bool bytes = progress_unit(source) == "byte";
  for (const auto& input : source.inputs) {
    const std::string file_name = input.filename().string();
    const int64_t done_before = progress.done;
    CorpusExample start;
    start.split = split_of_file(input, source.given);
    start.file = input.string();
    start.id = file_name.substr(0, file_name.find('.'));
    LineInput lines(input);
    const auto moved = [&] {
      if (bytes) progress.done = done_before + lines.bytes_read();
    };
    const bool json = source.kind != SourceKind::kText || file_name.find(".json") != std::string::npos;
    (json ? read_json : read_plain)(lines, start, source, sink, moved);
    if (!bytes) progress.done = done_before + 1;
  }
}

}  // namespace ripstop
