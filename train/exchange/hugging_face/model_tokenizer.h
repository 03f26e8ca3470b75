// The tokenizer that a model was trained with, as far as its files tell, beside that of a data set.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The SHA-256 of the tokenizer.model that the model in `directory` was trained with: a checkpoint's manifest
/// says it; a model of Hugging Face has the file beside it. Empty if it is not known. Throws
/// Error(kInputData) if the file is no tokenizer, and as read_manifest.
std::string find_tokenizer_sha256(Io& io, const std::filesystem::path& directory);

/// Whose tokenizers are compared.
struct TokenizerOwners {
  std::filesystem::path model;  ///< directory of a model of Hugging Face, or of a checkpoint
  std::string model_sha256;     ///< find_tokenizer_sha256 of it
  int64_t model_ids = 0;        ///< the model's vocab_size; 0: not to be compared
  std::string user;             ///< who has `tokenizer`, for messages: a data set, or the tokenizer's file
  std::string remedy = {};      ///< the hint if they differ; empty: ripstop prepare
};

/// Compares the tokenizer of the model with `tokenizer`, because the same ids would mean other texts: by the
/// SHA-256 of tokenizer.model; if the model has none, by the pieces in its tokenizer.json. Returns "" if they
/// are the same, and a note for people if the model has neither file. Throws Error(kInputData), with what to
/// type, if they differ, if `tokenizer` has more pieces than the model has ids, and if tokenizer.json is
/// damaged.
std::string compare_tokenizers(const TokenizerOwners& owners, const Tokenizer& tokenizer);

}  // namespace ripstop
