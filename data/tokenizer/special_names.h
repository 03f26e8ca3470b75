// SpecialNames: finds names of special tokens, such as </s>, inside texts.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ripstop {

/// The names of a tokenizer's special tokens. Several threads may call const members at once.
class SpecialNames {
 public:
  /// Takes the names of all special tokens of `tokenizer` (TokenPiece); for a SentencePiece model, also the
  /// names in added_tokens.json, special_tokens_map.json and tokenizer_config.json beside it. A file that is
  /// absent or damaged adds no name. Leaves out names shorter than 3 bytes or without ASCII punctuation.
  explicit SpecialNames(const Tokenizer& tokenizer);

  /// The first name in `text`; "" if there is none.
  std::string find(std::string_view text) const;

  /// For messages: a name inside a text is "encoded as text" (in pieces) or "read as this token".
  const char* how_read() const { return how_read_; }

 private:
  std::vector<std::string> names_;  // sorted
  std::string begins_;              // the first bytes of the names
  const char* how_read_;
};

}  // namespace ripstop
