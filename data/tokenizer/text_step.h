#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/regex.h"
#include "data/tokenizer/traced_text.h"
#include "data/tokenizer/unicode.h"

namespace ripstop {

/// A part of a text, and whether a pattern matches it.
struct PatternPart {
  size_t begin = 0, end = 0;
  bool matches = false;
};

/// A pattern to search for in texts.
struct TextPattern {
  std::string source;          ///< a text, or a regular expression
  std::optional<Regex> regex;  ///< absent: searches for `source` itself, which must not be empty

  /// Sets `parts` to the parts of `text`, in order and without gaps. Only parts that match can be empty. An
  /// empty text has no parts.
  void find_parts(std::string_view text, RegexScratch& scratch, std::vector<PatternPart>& parts) const;
};

/// Memory for one thread that applies steps.
struct StepScratch {
  RegexScratch regex;
  TracedText next;
  std::vector<PatternPart> parts;
};

/// One change to all pieces of a text except added tokens. Normalizers and pre-tokenizers are lists of steps.
struct TextStep {
  enum class Kind : uint8_t {
    kForm,         ///< brings pieces into the normal form `form`
    kLowercase,    ///< makes each letter lower case on its own
    kStrip,        ///< removes white space at the start (`left`) and end (`right`) of each piece
    kPrepend,      ///< puts `content` before pieces; `where`: all, those without it, the first if without it
    kReplace,      ///< puts `content` in place of each match of `pattern`
    kSplit,        ///< cuts pieces at the matches of `pattern`; `behavior` says what becomes of the matches
    kByteLetters,  ///< makes one letter of each byte, as GPT-2 does
  };
  enum class Where : uint8_t { kEverywhere, kUnlessThere, kFirstUnlessThere };
  enum class Behavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  bool left = false, right = false;
  TextPattern pattern{};
  bool invert = false;  ///< kSplit: swaps matches and the text between them
  Behavior behavior = Behavior::kIsolated;
  Where where = Where::kEverywhere;
  std::string content{};

  void apply(TracedText& text, StepScratch& scratch) const;
  /// All members, as one text.
  std::string identity() const;
};

/// The letter that stands for a byte: itself, or one from U+0100 to U+0143.
/// Source: bytes_to_unicode() of GPT-2's encoder.
uint32_t letter_of_byte(unsigned char byte);
inline constexpr uint32_t kByteLetterEnd = 0x144;

}  // namespace ripstop
