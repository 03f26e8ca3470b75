// Running text without summaries: JSONL with a "text", or plain files.
#include <map>

#include "data/corpus/corpus.h"
#include "data/corpus/corpus_json.h"
#include "data/corpus/corpus_names.h"
#include "data/text/line_input.h"
#include "data/text/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// A plain file is one document, but no part of it longer than this is held at once: it then goes on as a new
/// one.
constexpr size_t kMostDocumentBytes = 1 << 20;

/// Passes an example on with its split. Drops bytes that are not UTF-8: prepare counts the example as such.
void give(CorpusExample& example, const CorpusSource& source, const ExampleSink& sink) {
  example.invalid_utf8 = invalid_utf8(example.document).has_value();
  if (example.invalid_utf8) {
    example.document.clear();
  } else {
    example.split = split_of_document(example.split, example.document, source.validation_fraction);
  }
  sink(example);
}

/// One document a line, in the field "text" if the user names no other.
void read_json_texts(LineInput& lines, const CorpusExample& start, const CorpusSource& source,
                     const ExampleSink& sink, const std::function<void()>& moved) {
  const std::string field = source.document_field == "document" ? "text" : source.document_field;
  std::map<std::string, JsonField> fields;
  std::string line;
  while (lines.next(line)) {
    moved();
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    CorpusExample example = start;
    example.line = lines.line_number();
    // give() finds the same fault in the document and marks the example.
    if (invalid_utf8(line)) {
      example.document = line;
    } else {
      read_line_fields(line, {field, "id"}, example, fields);
      example.document = take_text(fields, field, SourceKind::kText, line, example);
      example.id = fields["id"].text;
    }
    if (example.id.empty()) example.id = fmt::format("{}-{}", start.id, example.line);
    give(example, source, sink);
  }
}

/// A file is one document, or several if it is long. Memory stays bounded.
void read_plain(LineInput& lines, const CorpusExample& start, const CorpusSource& source,
                const ExampleSink& sink, const std::function<void()>& moved) {
  CorpusExample example = start;
  std::string line;
  const auto flush = [&] {
    if (example.document.empty()) return;
    example.id = example.line == 1 ? start.id : fmt::format("{}-{}", start.id, example.line);
    give(example, source, sink);
    example = start;
  };
  while (lines.next(line)) {
    moved();
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (example.document.size() + line.size() > kMostDocumentBytes) flush();
    if (example.document.empty()) example.line = lines.line_number();
    example.document += line;
    example.document += '\n';
  }
  flush();
}

}  // namespace

void read_text(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  const bool bytes = progress_unit(source) == "byte";
  for (const auto& input : source.inputs) {
    const std::string file_name = input.filename().string();
    const int64_t done_before = progress.done;
    CorpusExample start;
    start.split = split_of_file(input);
    start.file = input.string();
    start.id = file_name.substr(0, file_name.find('.'));
    LineInput lines(input);
    const auto moved = [&] {
      if (bytes) progress.done = done_before + lines.bytes_read();
    };
    const bool json = file_name.find(".json") != std::string::npos;
    (json ? read_json_texts : read_plain)(lines, start, source, sink, moved);
    if (!bytes) progress.done = done_before + 1;
  }
}

}  // namespace ripstop
