// JSON lines with documents in, JSON lines with summaries out.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/text/text_lines.h"

namespace ripstop {

/// One line of the input.
struct DocumentLine {
  std::string line;      ///< as read
  std::string document;  ///< its field `document`; "" if that is null

  bool operator==(const DocumentLine&) const = default;
};

/// The next object of `lines`; nullopt at the end. Skips blank lines. Throws Error(kInputData), naming file
/// and line, if a line is no JSON object with a string or null as `document`; without that field, the message
/// has the fields that are there.
std::optional<DocumentLine> next_document(TextLines& lines);

/// `line` with the field `summary` added and the other fields in their order, without a line end. If `line`
/// has a `summary` already, that becomes `reference`, unless `line` has a `reference`, too. The field
/// `cut_tokens` follows if it is above 0: the tokens that the document lost because it did not fit.
std::string with_summary(const std::string& line, const std::string& summary, int64_t cut_tokens = 0);

}  // namespace ripstop
