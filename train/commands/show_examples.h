// The words of --split, and `prepare --show`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset/example_view.h"
#include "data/dataset/loss_on.h"
#include "data/tokenizer/tokenizer.h"
#include "train/commands/command_line.h"
#include "train/report/terminal.h"

namespace ripstop {

/// The words that --split accepts: train, validation, test, and the synonyms val, dev and eval.
Arguments split_words();
/// "validation" for val and dev, "test" for eval, as prepare names splits; else `word`.
std::string split_name(const std::string& word);
/// "train, test": the splits in `directory` that have examples. Throws the errors of TokenDataset.
std::string splits_with_examples(const std::filesystem::path& directory);

/// The text of `ids`, with special tokens by name: "<s> The harbour</s>". Byte pieces of a letter are shown
/// as the letter.
std::string visible_tokens(const std::vector<int32_t>& ids, const Tokenizer& tokenizer);

/// A line about an example: its number and piece, `id` (may be empty), the tokens of each part, turns, and
/// how many of them are cut, and the tokens in the loss.
std::string example_line(const ExampleView& view, std::string_view id);

/// The text of an example. Tokens in the loss are between "[[" and "]]", or in bold green if `terminal` has
/// colors. "<2 turns, 205 tokens cut>" replaces missing tokens.
std::string example_text(const ExampleView& view, const Tokenizer& tokenizer, const Terminal& terminal);

/// The options of `prepare --show`.
struct ShowArguments {
  int64_t count = 0;             ///< show at most this many examples
  std::string split = "train";   ///< "train", "validation" or "test"
  std::optional<uint64_t> seed;  ///< draws examples at random; nullopt: the first examples
  int64_t sequence_length = 0;   ///< 0: documents are not cut
  LossOn loss_on = LossOn::kAuto;
  bool json = false;  ///< one JSON document instead of text
};

/// Throws Error(kUsage) if `directory` does not exist, and Error(kInputData) if it is no data set or the
/// split has no examples.
void check_examples_to_show(const std::filesystem::path& directory, const ShowArguments& given);

/// Prints examples to standard output, as training sees them; of an empty split nothing, or with given.json
/// an empty list. Throws Error(kUsage) if loss_on does not suit the data, Error(kInputData) for damage or
/// another tokenizer than the data set's.
void show_examples(const std::filesystem::path& directory, const ShowArguments& given);

}  // namespace ripstop
