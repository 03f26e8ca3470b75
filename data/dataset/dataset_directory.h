#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The path of a file of the data set in `directory`. Throws Error(kInputData), with the command that makes a
/// data set, if directory or file does not exist.
std::filesystem::path dataset_file(const std::filesystem::path& directory, const std::string& file_name);

/// The tokenizer's file in the data set in `directory`. Throws the errors of dataset_file().
std::filesystem::path dataset_tokenizer(const std::filesystem::path& directory);

/// Throws Error(kInputData) unless `dataset` was made with `tokenizer`: compares SHA-256, vocabulary size,
/// begin and end tokens, chat template, and whether special tokens in texts are read. Call it wherever a data
/// set and its tokenizer are open: nothing else notices wrong ids.
void require_dataset_tokenizer(const TokenDataset& dataset, const Tokenizer& tokenizer);

/// Throws Error(kInputData) if a run cannot have both data sets: they must have the same tokenizer and
/// begin tokens. Kinds, prompts, end tokens and the reading of special tokens may differ.
void require_same_tokens(const TokenDataset& first, const TokenDataset& other);

/// Same as TokenDataset::text(), but throws Error(kInputData) if a summary does not encode to the targets of
/// its example. For a conversation, `summary` is the last answer that counts, and `document` the turns before
/// it. `tokenizer` must be the tokenizer of `dataset`.
std::vector<ExampleText> checked_text(const TokenDataset& dataset, const Tokenizer& tokenizer, int64_t first,
                                      int64_t count);

}  // namespace ripstop
