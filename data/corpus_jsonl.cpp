// Pairs from JSONL: one object a line with document, summary and perhaps id.
#include <map>

#include "data/compressed_input.h"
#include "data/corpus.h"
#include "data/json_fields.h"
#include "data/utf8.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

/// The text of a field that must be there and be a string.
std::string take_text(std::map<std::string, JsonField>& fields, const std::string& field,
                      const CorpusExample& at) {
  const auto found = fields.find(field);
  if (found == fields.end()) {
    throw Error(ExitCode::kInputData, fmt::format("{}:{}: field '{}' is missing", at.file, at.line, field),
                "--document-field and --summary-field name other fields");
  }
  if (!found->second.is_string)
    fail(ExitCode::kInputData, "{}:{}: field '{}' is not a string", at.file, at.line, field);
  return std::move(found->second.text);
}

}  // namespace

void read_jsonl(const CorpusSource& source, CorpusProgress& progress, const ExampleSink& sink) {
  const std::vector<std::string> names = {source.document_field, source.summary_field, "id"};
  std::map<std::string, JsonField> fields;
  std::string line, error;
  for (const auto& input : source.inputs) {
    const Split split = split_of_file(input);
    const std::string stem = input.filename().string().substr(0, input.filename().string().find('.'));
    const int64_t done_before = progress.done;
    LineInput lines(input);
    while (lines.next(line)) {
      progress.done = done_before + lines.bytes_read();
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      CorpusExample example;
      example.split = split;
      example.file = input.string();
      example.line = lines.line_number();
      // A line that is not UTF-8 is passed on without its fields: prepare decides whether to skip or to fail.
      example.invalid_utf8 = invalid_utf8(line).has_value();
      if (!example.invalid_utf8) {
        if (!read_json_fields(line, names, fields, error)) {
          fail(ExitCode::kInputData, "{}:{}: {}", example.file, example.line, error);
        }
        example.document = take_text(fields, source.document_field, example);
        example.summary = take_text(fields, source.summary_field, example);
        example.id = fields.count("id") != 0 ? fields["id"].text : "";
        // predictions.jsonl shows the id, so that people find the example again.
        if (example.id.empty()) example.id = fmt::format("{}-{}", stem, example.line);
        example.split = split_of_document(split, example.document, source.validation_fraction);
      }
      sink(example);
    }
  }
}

}  // namespace ripstop
