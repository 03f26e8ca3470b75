#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/tokenizer/json_tokenizer.h"
#include "data/tokenizer/tokenizer_files.h"

namespace ripstop {

/// The end token of a tokenizer.json, by the files beside it or else by a usual name.
struct EndToken {
  std::optional<int32_t> id;
  std::string problem = {};  ///< without an id: why the end token is not known
  std::string note = {};     ///< a note for people; may be ""
};

/// Looks, in this order, for eos_token in tokenizer_config.json and special_tokens_map.json, for eos_token_id
/// in config.json, and for </s>, <|endoftext|> or <|end_of_text|>, if exactly one of them is an added token.
/// The first one found decides; if it is no token of `tokenizer`, or a list of several ids or none, there is
/// no id. Throws Error(kInputData) for a damaged file.
EndToken find_end_token(const TokenizerFiles& files, const JsonTokenizer& tokenizer);

/// The id of the token that is spelled `name`, added tokens first; nullopt if there is none.
std::optional<int32_t> find_token(const JsonTokenizer& tokenizer, std::string_view name);

}  // namespace ripstop
