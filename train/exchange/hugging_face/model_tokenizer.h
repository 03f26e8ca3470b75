// Whether a model was trained with a given tokenizer, as far as the model's files tell.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The SHA-256 of the tokenizer.model that the model in `directory` was trained with: from a checkpoint's
/// manifest, or of the file beside a model of Hugging Face. Empty if it is not known. Throws
/// Error(kInputData) if the file is no tokenizer, and what read_manifest throws.
std::string find_tokenizer_sha256(Io& io, const std::filesystem::path& directory);

/// The model and the user of the tokenizers that compare_tokenizers compares.
struct TokenizerOwners {
  std::filesystem::path model;  ///< directory of a model of Hugging Face, or of a checkpoint
  std::string model_sha256;     ///< find_tokenizer_sha256(model)
  int64_t model_ids = 0;        ///< the model's vocab_size; 0: do not compare
  std::string user;             ///< the data set or file that has `tokenizer`, for messages
  std::string remedy = {};      ///< the hint if they differ; empty: call ripstop prepare
};

/// Compares the model's tokenizer with `tokenizer`: in another one the same ids would mean other texts.
/// Compares the SHA-256 of tokenizer.model; if the model has no such file, the pieces in its tokenizer.json.
/// Returns "" if they are equal, and a note for people if the model has neither file. Throws
/// Error(kInputData), with what to type, if they differ, if `tokenizer` has more pieces than the model has
/// ids, and if tokenizer.json is damaged.
std::string compare_tokenizers(const TokenizerOwners& owners, const Tokenizer& tokenizer);

}  // namespace ripstop
