// --split, and prepare --show: examples of a data set as training sees them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/dataset/loss_on.h"
#include "train/commands/command_line.h"

namespace ripstop {

/// The words that --split accepts: train, validation and test, and what other tools call them.
Arguments split_words();
/// The split that one of these words names: "validation" for val and dev.
std::string split_name(const std::string& word);
/// "train, test": the splits of the data set in `directory` that have examples. Throws as TokenDataset.
std::string splits_with_examples(const std::filesystem::path& directory);

/// Which examples to show, and how a run would read them.
struct ShowArguments {
  int64_t count = 0;             ///< so many examples; fewer if the split has no more
  std::string split = "train";   ///< "train", "validation" or "test"
  std::optional<uint64_t> seed;  ///< draws them at random; else the first
  int64_t sequence_length = 0;   ///< 0: documents are not cut
  LossOn loss_on = LossOn::kSummary;
  bool json = false;  ///< one JSON document instead of text
};

/// Throws unless `directory` has a data set whose split has examples: Error(kUsage) if it is not there,
/// Error(kInputData) if it is none, or if the split is empty.
void check_examples_to_show(const std::filesystem::path& directory, const ShowArguments& given);

/// Prints examples of the data set in `directory` to standard output; none if the split is empty. Reads only.
/// Throws Error(kInputData) if the data set is damaged, or if its tokenizer is another one.
void show_examples(const std::filesystem::path& directory, const ShowArguments& given);

}  // namespace ripstop
