// Properties of code points by ICU's Unicode; normal forms and punctuation by that of `tokenizers`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "model/core/function_ref.h"

namespace ripstop {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// Whether the valid UTF-8 `text` is in the normal form `form`.
bool is_normal(NormalForm form, std::string_view text);
/// Calls take(bytes, begin, end) for each part of the valid UTF-8 `text` in order: the part from byte `begin`
/// to `end` becomes `bytes`. Code points that came after Unicode 9 stay as they are, because `tokenizers`
/// does not know them.
void normalize(NormalForm form, std::string_view text,
               FunctionRef<void(std::string_view bytes, size_t begin, size_t end)> take);

/// The lower case of one letter, without regard to its neighbours.
std::string lowercase(uint32_t letter);
/// Whether `letter` has the property White_Space.
bool is_white_space(uint32_t letter);
/// Whether `letter` is alphabetic, a mark, a decimal digit, connecting punctuation or a joiner.
bool is_word_letter(uint32_t letter);
/// The code points that the pre-tokenizer Punctuation treats as punctuation, as a class of PCRE2.
std::string punctuation_class();

}  // namespace ripstop
