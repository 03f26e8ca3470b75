// JSONL that comes with documents and goes with summaries.
#pragma once
#include <optional>
#include <string>

#include "data/text_lines.h"

namespace ripstop {

/// One object of the input.
struct DocumentLine {
  std::string line;      ///< as read
  std::string document;  ///< its field `document`

  bool operator==(const DocumentLine&) const = default;
};

/// The next object of `lines`, blank lines left out; nothing at the end. Throws Error(kInputData) naming file
/// and line for what is no JSON object with a string `document`.
std::optional<DocumentLine> next_document(TextLines& lines);

/// `line` with the field `summary` added, the others kept in their order. A `summary` that is there already
/// becomes `reference`, unless there is one. No line end.
std::string with_summary(const std::string& line, const std::string& summary);

}  // namespace ripstop
