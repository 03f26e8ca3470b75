// Examples of a data set as text for people: every token visible, those that count in the loss marked.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/example_view.h"
#include "data/tokenizer/tokenizer.h"
#include "train/report/terminal.h"

namespace ripstop {

/// The text of ids with each special token by its name, as in "<s> The harbour</s>". Byte pieces that form a
/// letter are shown as the letter.
std::string visible_tokens(const std::vector<int32_t>& ids, const Tokenizer& tokenizer);

/// One line about an example: its number, `id` (may be empty), the tokens of its parts, how many of them are
/// cut and how many count.
std::string example_line(const ExampleView& view, std::string_view id);

/// The tokens of an example as text. What counts stands between "[[" and "]]", or in bold green if `terminal`
/// has colors. Places at which tokens are missing say how many: "<205 tokens cut>".
std::string example_text(const ExampleView& view, const Tokenizer& tokenizer, const Terminal& terminal);

/// The marks of example_text() in words, for the line above it: "in bold green", "between [[ and ]]".
std::string counted_mark(const Terminal& terminal);

}  // namespace ripstop
