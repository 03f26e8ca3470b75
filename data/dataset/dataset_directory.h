#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The path of a file of the data set in `directory`. Throws Error(kInputData), with a hint, if there is no
/// such directory or file.
std::filesystem::path dataset_file(const std::filesystem::path& directory, const std::string& file_name);

/// The tokenizer's file in a data set. Throws the errors of dataset_file() and tokenizer_file_name().
std::filesystem::path dataset_tokenizer(const std::filesystem::path& directory);

/// Throws Error(kInputData) unless `dataset` was made with `tokenizer`: compares SHA-256, vocabulary size,
/// number of begin tokens, end token, chat template with date, and whether special tokens in texts are read.
/// Call it wherever a data set and its tokenizer are opened: without it, wrong ids may pass unnoticed.
void require_dataset_tokenizer(const TokenDataset& dataset, const Tokenizer& tokenizer);

/// Throws Error(kInputData) if a run cannot have both data sets: they must have the same tokenizer and number
/// of begin tokens. Kinds, prompts, end tokens and the reading of special tokens may differ.
void require_same_tokens(const TokenDataset& first, const TokenDataset& other);

/// Same as TokenDataset::text(), but throws Error(kInputData) if a summary does not encode to the targets of
/// its example, or a conversation has no answer that counts. The last such answer becomes `summary`, the
/// turns before it `document`. `tokenizer` must be the tokenizer of `dataset`.
std::vector<ExampleText> checked_text(const TokenDataset& dataset, const Tokenizer& tokenizer, int64_t first,
                                      int64_t count);

}  // namespace ripstop
