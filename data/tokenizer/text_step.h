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

/// A pattern that texts are searched for.
struct TextPattern {
  std::string source;          ///< a text, or a regular expression
  std::optional<Regex> regex;  ///< absent: `source` itself is searched for, which must not be empty

  /// Puts the parts of `text`, which follow one another without a gap, in place of `parts`. Only parts that
  /// match can be empty. An empty text has none.
  void find_parts(std::string_view text, RegexScratch& scratch, std::vector<PatternPart>& parts) const;
};

/// Memory with which one thread takes steps.
struct StepScratch {
  RegexScratch regex;
  TracedText next;
  std::vector<PatternPart> parts;
};

/// One change of all pieces of a text that are no added tokens. Normalizers and pre-tokenizers are lists of
/// steps.
struct TextStep {
  enum class Kind : uint8_t {
    kForm,         ///< `form`
    kLowercase,    ///< every letter alone
    kStrip,        ///< white space away from the `left` and `right` ends of each piece
    kPrepend,      ///< `content` before each piece, as `where` says
    kReplace,      ///< `content` for every match of `pattern`
    kSplit,        ///< cuts pieces at the matches of `pattern`; `behavior` says what becomes of the matches
    kByteLetters,  ///< each byte becomes one letter, as GPT-2 has it
  };
  enum class Where : uint8_t { kEverywhere, kUnlessThere, kFirstUnlessThere };
  enum class Behavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  bool left = false, right = false;
  TextPattern pattern{};
  bool invert = false;  ///< kSplit: what does not match counts as a match
  Behavior behavior = Behavior::kIsolated;
  Where where = Where::kEverywhere;
  std::string content{};

  void apply(TracedText& text, StepScratch& scratch) const;
  /// All that decides what the step does, unlike that of any other step.
  std::string identity() const;
};

/// The letter that stands for a byte: itself, or one from U+0100 to U+0143.
/// Source: bytes_to_unicode() of GPT-2's encoder.
uint32_t letter_of_byte(unsigned char byte);
inline constexpr uint32_t kByteLetterEnd = 0x144;

}  // namespace ripstop
