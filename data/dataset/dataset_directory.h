// Checks that the files of the directory that prepare makes exist and belong together.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The path of the file `file_name` of the data set in `directory`. Throws Error(kInputData), with the path
/// and the command that makes a data set, if the directory or the file does not exist.
std::filesystem::path dataset_file(const std::filesystem::path& directory, const std::string& file_name);

/// Throws Error(kInputData) unless the SHA-256 and the vocabulary size stored in `dataset` are those of
/// `tokenizer`. Call it wherever both are open: no other check notices that the ids stand for other texts.
void require_dataset_tokenizer(const TokenDataset& dataset, const Tokenizer& tokenizer);

/// TokenDataset::text() with a check, for scores. Requires the tokenizer of `dataset`. Throws
/// Error(kInputData) also if the summary of an example does not encode to the targets of the example.
std::vector<ExampleText> checked_text(const TokenDataset& dataset, const Tokenizer& tokenizer, int64_t first,
                                      int64_t count);

}  // namespace ripstop
