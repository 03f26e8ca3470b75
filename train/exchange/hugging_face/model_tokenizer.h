// Whether a model was trained with a given tokenizer, as far as the model's files tell.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The SHA-256 of the tokenizer.model that the model in `directory` was trained with: taken from a
/// checkpoint's manifest, or computed from the file beside a model of Hugging Face. Empty if the tokenizer is
/// not known. Throws Error(kInputData) if that file is no tokenizer, and what read_manifest throws.
std::string find_tokenizer_sha256(Io& io, const std::filesystem::path& directory);

/// The owners of the two tokenizers that compare_tokenizers compares: a model, and the user of `tokenizer`.
struct TokenizerOwners {
  std::filesystem::path model;  ///< directory of a model of Hugging Face, or of a checkpoint
  std::string model_sha256;     ///< find_tokenizer_sha256(model)
  int64_t model_ids = 0;        ///< the model's vocab_size; 0: the number of pieces is not compared
  std::string user;             ///< the data set or file that has `tokenizer`, for messages
  /// The hint if the tokenizers differ; empty: the hint is to call ripstop prepare.
  std::string remedy = {};
};

/// Compares the model's tokenizer with `tokenizer`: with another tokenizer, the same ids would mean other
/// texts. Compares the SHA-256 of tokenizer.model; if the model has no such file, compares the pieces in the
/// model's tokenizer.json. Returns "" if the tokenizers are equal, and a note for people if the model has
/// neither file.
/// Throws Error(kInputData), with what to type, if the tokenizers differ.
/// Throws Error(kInputData) if `tokenizer` has more pieces than the model has ids.
/// Throws Error(kInputData) if tokenizer.json is damaged.
std::string compare_tokenizers(const TokenizerOwners& owners, const Tokenizer& tokenizer);

}  // namespace ripstop
