// Reads the words of --split, and does `prepare --show`: shows examples of a data set as training sees them.
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
/// The split that one of these words means: "validation" for val and dev, else the word itself.
std::string split_name(const std::string& word);
/// "train, test": the splits of the data set in `directory` that have examples. Throws as TokenDataset.
std::string splits_with_examples(const std::filesystem::path& directory);

/// The options of `prepare --show`.
struct ShowArguments {
  int64_t count = 0;             ///< show at most this many examples
  std::string split = "train";   ///< "train", "validation" or "test"
  std::optional<uint64_t> seed;  ///< seed for drawing examples at random; nullopt: show the first ones
  int64_t sequence_length = 0;   ///< 0: documents are not cut
  LossOn loss_on = LossOn::kSummary;
  bool json = false;  ///< one JSON document instead of text
};

/// Checks the arguments before anything is shown.
/// Throws Error(kUsage) if `directory` does not exist.
/// Throws Error(kInputData) if `directory` is no data set or the split has no examples.
void check_examples_to_show(const std::filesystem::path& directory, const ShowArguments& given);

/// Prints examples of the data set in `directory` to standard output; nothing if the split is empty. Throws
/// Error(kInputData) if the data set is damaged, or if the tokenizer in `directory` is not the one that made
/// the data set.
void show_examples(const std::filesystem::path& directory, const ShowArguments& given);

}  // namespace ripstop
