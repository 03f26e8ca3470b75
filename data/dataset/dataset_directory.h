// Checks of the directory that prepare makes: that its files exist and belong together.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The path of a file of the data set in `directory`. Throws Error(kInputData), with the path and the command
/// that makes a data set, if the directory or the file does not exist.
std::filesystem::path dataset_file(const std::filesystem::path& directory, const std::string& file_name);

/// Throws Error(kInputData) unless `dataset` states the SHA-256 and the number of pieces of `tokenizer`. Call
/// it wherever both are open: nothing else shows that the ids mean other texts.
void require_dataset_tokenizer(const TokenDataset& dataset, const Tokenizer& tokenizer);

/// TokenDataset::text, for scores. Throws Error(kInputData) also if a summary is not the text of its
/// example's targets. `tokenizer` must be the one of `dataset`.
std::vector<ExampleText> checked_text(const TokenDataset& dataset, const Tokenizer& tokenizer, int64_t first,
                                      int64_t count);

}  // namespace ripstop
