// Pairs from JSONL: one object a line with document, summary and perhaps id.
#include <fmt/format.h>

#include <map>

#include "data/corpus/corpus.h"
#include "data/corpus/corpus_json.h"
#include "data/corpus/corpus_names.h"
#include "data/text/line_input.h"
#include "data/text/utf8.h"

namespace ripstop {
namespace {

/// Fills the texts, the id and the split of `example` from its line. A line that is not UTF-8 is passed on
/// without its fields: prepare decides whether to skip or to fail.
void parse_pair(const std::string& line, const std::string& stem, const CorpusSource& source,
                CorpusExample& example) {
  example.invalid_utf8 = invalid_utf8(line).has_value();
  if (example.invalid_utf8) return;
  std::map<std::string, JsonField> fields;
  read_line_fields(line, {source.document_field, source.summary_field, "id"}, example, fields);
  example.document = take_text(fields, source.document_field, SourceKind::kJsonl, line, example);
  example.summary = take_text(fields, source.summary_field, SourceKind::kJsonl, line, example);
  example.id = fields["id"].text;
  // predictions.jsonl shows the id, so that people find the example again.
  if (example.id.empty()) example.id = fmt::format("{}-{}", stem, example.line);
  example.split = split_of_document(example.split, example.document, source.validation_fraction);
}

}  // namespace

void read_jsonl(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  const bool bytes = progress_unit(source) == "byte";
  std::string line;
  for (const auto& input : source.inputs) {
    const std::string stem = input.filename().string().substr(0, input.filename().string().find('.'));
    const int64_t done_before = progress.done;
    LineInput lines(input);
    while (lines.next(line)) {
      if (bytes) progress.done = done_before + lines.bytes_read();
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      CorpusExample example;
      example.split = split_of_file(input);
      example.file = input.string();
      example.line = lines.line_number();
      parse_pair(line, stem, source, example);
      sink(example);
    }
    if (!bytes) progress.done = done_before + 1;
  }
}

}  // namespace ripstop
