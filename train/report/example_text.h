// Examples of a data set as text for people.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/example_view.h"
#include "data/tokenizer/tokenizer.h"
#include "train/report/terminal.h"

namespace ripstop {

/// The text of `ids`, with special tokens by name: "<s> The harbour</s>". Byte pieces of a letter are shown
/// as the letter.
std::string visible_tokens(const std::vector<int32_t>& ids, const Tokenizer& tokenizer);

/// A line about an example: its number, `id` (may be empty), the tokens of each part and how many of them are
/// cut, and the tokens in the loss.
std::string example_line(const ExampleView& view, std::string_view id);

/// The text of an example. Tokens in the loss are between "[[" and "]]", or in bold green if `terminal` has
/// colors. "<2 turns, 205 tokens cut>" replaces missing tokens.
std::string example_text(const ExampleView& view, const Tokenizer& tokenizer, const Terminal& terminal);

/// The mark of tokens in the loss: "in bold green" or "between [[ and ]]".
std::string counted_mark(const Terminal& terminal);

}  // namespace ripstop
