// A line of JSON as the readers of corpora take it: fields that must be there, and messages that help.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/text/json_fields.h"

namespace ripstop {

/// Reads the members of `line` with these `names`. Throws Error(kInputData) with the place of `at` if `line`
/// is no JSON object.
void read_line_fields(const std::string& line, const std::vector<std::string>& names, const CorpusExample& at,
                      std::map<std::string, JsonField>& fields);

/// Moves the text of `field` out of `fields`, which were read from `line`. A null gives "", which counts as
/// empty. Throws Error(kInputData) with the place of `at` if the field is not there (the message has the
/// fields that are), or is of another type. `kind` is kJsonl if the line has a summary, too, else kText.
std::string take_text(std::map<std::string, JsonField>& fields, const std::string& field, SourceKind kind,
                      const std::string& line, const CorpusExample& at);

}  // namespace ripstop
