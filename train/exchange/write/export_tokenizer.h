// A SentencePiece tokenizer as the files from which transformers makes the same ids.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The files, and what is not the same there.
struct TokenizerFiles {
  std::vector<std::pair<std::string, std::string>> texts;  ///< name and bytes
  /// Which texts get other ids from AutoTokenizer than from Tokenizer::encode; empty if none is known.
  std::string difference;
};

/// tokenizer.model, tokenizer_config.json, special_tokens_map.json, and tokenizer.json, which transformers
/// prefers: LlamaTokenizer of transformers 5 makes other ids of leading spaces and of runs of them if it has
/// the .model alone. The marks of BOS, EOS and unk in a text are text, as they are for ripstop. Without
/// tokenizer.json, and with a difference, if the model has pieces of its user's or spaces at the ends of
/// words. `longest`: positions of the model. Sources: https://github.com/huggingface/tokenizers (the JSON
/// form of Tokenizer); https://github.com/google/sentencepiece (bpe_model.cc: the order of merges).
TokenizerFiles tokenizer_files(const Tokenizer& tokenizer, int64_t longest);

}  // namespace ripstop
