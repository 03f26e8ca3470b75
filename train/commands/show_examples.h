// The words of --split, and `prepare --show`: examples of a data set as training sees them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/dataset/loss_on.h"
#include "train/commands/command_line.h"

namespace ripstop {

/// The words that --split accepts: train, validation, test, and other tools' words val and dev.
Arguments split_words();
/// The split that one of these words names: "validation" for val and dev.
std::string split_name(const std::string& word);
/// "train, test": the splits of the data set in `directory` that have examples. Throws as TokenDataset.
std::string splits_with_examples(const std::filesystem::path& directory);

/// The options of `prepare --show`.
struct ShowArguments {
  int64_t count = 0;             ///< at most so many examples
  std::string split = "train";   ///< "train", "validation" or "test"
  std::optional<uint64_t> seed;  ///< draws examples at random; nullopt: the first ones
  int64_t sequence_length = 0;   ///< 0: documents are not cut
  LossOn loss_on = LossOn::kSummary;
  bool json = false;  ///< one JSON document instead of text
};

/// Throws Error(kUsage) if `directory` does not exist, Error(kInputData) if it is no data set or the split
/// has no examples.
void check_examples_to_show(const std::filesystem::path& directory, const ShowArguments& given);

/// Prints examples of the data set in `directory` to standard output; nothing if the split is empty. Throws
/// Error(kInputData) if the data set is damaged, or if the tokenizer there is not the one that made it.
void show_examples(const std::filesystem::path& directory, const ShowArguments& given);

}  // namespace ripstop
