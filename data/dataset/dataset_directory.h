// The directory that prepare makes: whether its files are there, and whether they belong together.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// `directory`/`file_name` of a data set. Throws Error(kInputData), with where it looked and the command that
/// makes a data set, if one of both is not there.
std::filesystem::path dataset_file(const std::filesystem::path& directory, const std::string& file_name);

/// Throws Error(kInputData) unless `dataset` was made with `tokenizer`: the SHA-256 and the number of pieces
/// are those that the file states. To be called wherever both are open: with another tokenizer the same ids
/// mean other texts, and nothing else would show it.
void require_dataset_tokenizer(const TokenDataset& dataset, const Tokenizer& tokenizer);

/// Texts of examples first .. first + count - 1, to compare summaries with. Main thread only. Throws
/// Error(kInputData) as TokenDataset::text does, and if a summary is not the text of its example's targets:
/// scores against another example's summary would mean nothing. `tokenizer` must be that of `dataset`.
std::vector<ExampleText> checked_text(const TokenDataset& dataset, const Tokenizer& tokenizer, int64_t first,
                                      int64_t count);

}  // namespace ripstop
