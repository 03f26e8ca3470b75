// SpecialNames: finds names of special tokens, such as </s>, inside texts.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The names of a tokenizer's special tokens. Inside a text, such a name is encoded as text, in several
/// pieces. Several threads may call const members at once.
class SpecialNames {
 public:
  /// Takes the names of control, unknown and unused pieces of `tokenizer`, and of added tokens in
  /// added_tokens.json, special_tokens_map.json and tokenizer_config.json beside the tokenizer's file. A file
  /// that is absent or damaged adds none. Leaves out names shorter than 3 bytes or without punctuation.
  explicit SpecialNames(const Tokenizer& tokenizer);

  /// The first name in `text`; "" if there is none.
  std::string find(std::string_view text) const;

 private:
  std::vector<std::string> names_;  // sorted
  std::string begins_;              // the first bytes of the names
};

}  // namespace ripstop
