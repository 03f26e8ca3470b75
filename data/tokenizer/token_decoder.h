#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/text_step.h"

namespace ripstop {

/// One step from the spellings of tokens to text.
struct DecodeStep {
  enum class Kind : uint8_t {
    kByteLevel,     ///< joins all tokens; their letters become the bytes that they stand for
    kReplace,       ///< puts `content` in place of each match of `pattern` in a token
    kByteFallback,  ///< tokens such as <0x0A> become bytes
    kFuse,          ///< all tokens become one
    kStrip,         ///< drops `content` up to `start` times at each token's start, `stop` times at its end
    kMetaspace,     ///< the letter `content` becomes a space; `drops_first` removes it in the first token
  };
  Kind kind = Kind::kFuse;
  TextPattern pattern;
  std::string content;
  int64_t start = 0, stop = 0;
  bool drops_first = false;

  /// All members, as one text.
  std::string identity() const;
};

/// Makes text of tokens. Several threads may call const members at once.
class TokenDecoder {
 public:
  explicit TokenDecoder(std::vector<DecodeStep> steps);

  /// The text of tokens, valid UTF-8. Bytes that are not UTF-8 become U+FFFD. Without steps, spaces separate
  /// the tokens. Throws the errors of Regex::find().
  std::string decode(std::vector<std::string> tokens) const;
  /// The bytes of a token, decoded as if others came before it.
  std::string bytes(std::string token) const;
  std::string identity() const;

 private:
  std::string byte_level(std::string_view token) const;

  std::vector<DecodeStep> steps_;
  std::array<int16_t, kByteLetterEnd> byte_of_letter_;  // -1: stands for no byte
};

/// `bytes` with U+FFFD for what is not UTF-8: one for each longest start of a letter, or else each byte.
/// Source: chapter 3 of the Unicode standard, "U+FFFD Substitution of Maximal Subparts".
std::string with_replacement_letters(std::string_view bytes);

}  // namespace ripstop
