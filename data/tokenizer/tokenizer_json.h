#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe_model.h"
#include "data/tokenizer/text_step.h"
#include "data/tokenizer/token_decoder.h"

namespace ripstop {

/// The parts of a JsonTokenizer, as a tokenizer.json describes them.
struct TokenizerJson {
  BpeParts model;
  std::vector<AddedToken> added;  ///< in the order of the file; `spelling` is `content`
  std::vector<TextStep> normalizer, pre_tokenizer;
  std::vector<int32_t> prefix, suffix;
  std::vector<DecodeStep> decoder;
};

/// Reads a tokenizer.json. Throws Error(kInputData), whose message begins with `name`, for damage and for
/// anything that is not known to give the same ids and texts as `tokenizers`.
TokenizerJson read_tokenizer_json(std::string_view json, const std::string& name);

}  // namespace ripstop
