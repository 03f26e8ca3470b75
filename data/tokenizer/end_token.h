#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace ripstop {

/// The end token that the files of a tokenizer.json name.
struct EndToken {
  std::optional<int32_t> id;
  std::string problem = {};  ///< without an id: why none is known
  std::string note = {};     ///< a note for people; "": none
};

/// Looks, in this order, for eos_token in tokenizer_config.json and special_tokens_map.json, eos_token_id in
/// config.json, and for the only one of </s>, <|endoftext|> and <|end_of_text|> that is an added token. The
/// first that is there decides, even if it is no token of `tokenizer`. Throws Error(kInputData) for a damaged
/// file.
EndToken find_end_token(const TokenizerFiles& files, const JsonTokenizer& tokenizer);

/// The id of the token `name` in the vocabulary's spelling, among the added tokens first.
std::optional<int32_t> find_token(const JsonTokenizer& tokenizer, std::string_view name);

}  // namespace ripstop
