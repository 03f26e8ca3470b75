// Compares a model's tokenizer with another tokenizer.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// Tokenizer::sha256 of the tokenizer in the directory of a Hugging Face model; "" without a tokenizer, or
/// with only an unreadable tokenizer.json. Throws Error(kInputData) if tokenizer.model is damaged.
std::string read_tokenizer_sha256(const std::filesystem::path& directory);

/// Tokenizer::sha256 of the model's tokenizer, from a checkpoint's manifest or by read_tokenizer_sha256.
/// Throws what read_manifest and read_tokenizer_sha256 throw.
std::string find_tokenizer_sha256(Io& io, const std::filesystem::path& directory);

/// Input of compare_tokenizers: a model, and a data set or file that should have its tokenizer.
struct TokenizerOwners {
  std::filesystem::path model;  ///< directory of a Hugging Face model, or of a checkpoint
  std::string model_sha256;     ///< find_tokenizer_sha256(model)
  int64_t model_ids = 0;        ///< the model's vocab_size; 0: the number of pieces is not compared
  std::string user;             ///< data set or file that has `tokenizer`, for messages
  /// Whether `tokenizer` may have further pieces after all of the model's: a note then counts them.
  bool may_go_on = false;
  /// The hint if the tokenizers differ; empty: a hint that names ripstop prepare.
  std::string remedy = {};
};

/// Compares the model's tokenizer with `tokenizer`, by Tokenizer::sha256 or SentencePiece file. If both
/// differ, pieces decide where the model has a tokenizer.json and `tokenizer` is a SentencePiece model, or
/// where tokenizer.json cannot be read. Returns "" if they are equal, else a note: the model has no
/// tokenizer, `tokenizer` goes on (may_go_on), or pieces alone were compared. Throws Error(kInputData) if the
/// tokenizers differ, `tokenizer` has more pieces than the model has ids, or tokenizer.json is damaged.
std::string compare_tokenizers(const TokenizerOwners& owners, const Tokenizer& tokenizer);

}  // namespace ripstop
