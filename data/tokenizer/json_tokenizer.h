// JsonTokenizer: the tokenizer in a tokenizer.json of Hugging Face's library `tokenizers`.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/spanned_token.h"

namespace ripstop {

/// A tokenizer whose ids and texts equal those of `tokenizers`. Several threads may call const members at
/// once.
class JsonTokenizer {
 public:
  /// Whether special added tokens, such as <s>, inside a text are read as text or as tokens. Added tokens
  /// that are not special are always tokens.
  enum class Special : bool { kText, kTokens };

  /// `json`: bytes of a tokenizer.json. `name`: for messages. Throws Error(kInputData) if the file is
  /// damaged, or if a component or value in it might give other ids than `tokenizers`. Ignores `truncation`
  /// and `padding`.
  JsonTokenizer(std::string_view json, const std::string& name);
  ~JsonTokenizer();
  JsonTokenizer(JsonTokenizer&&) noexcept;
  JsonTokenizer& operator=(JsonTokenizer&&) noexcept;

  /// The highest id + 1. Ids below it may have no token.
  int64_t vocabulary_size() const;
  /// Identifies the tokenizer: SHA-256, 64 hex digits, of all that decides ids and texts, in a form that does
  /// not depend on the version that saved the file.
  const std::string& sha256() const;

  /// The ids of `text`, which is UTF-8, without prefix() and suffix(). Throws Error(kInputData) if `text` is
  /// not UTF-8, or if a regular expression of the tokenizer takes too many steps on it. If a token ends
  /// inside a letter, its end_byte is the end of that letter.
  std::vector<SpannedToken> encode(std::string_view text, Special special) const;
  /// The ids that the post-processor puts before and after a text.
  const std::vector<int32_t>& prefix() const;
  const std::vector<int32_t>& suffix() const;

  /// The text of `ids`, always valid UTF-8: bytes that are not UTF-8 become U+FFFD. `skip_special` leaves
  /// special added tokens out. Ids without a token are left out. Throws Error(kInputData) for an id outside
  /// the vocabulary.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  std::optional<int32_t> added_token(std::string_view content) const;
  bool is_special(int32_t id) const;
  /// The token in the vocabulary's spelling: "\u0120The", "\u2581The", "<0x0A>"; empty if `id` has no token.
  /// Throws Error(kInputData) for an id outside the vocabulary.
  std::string_view piece_name(int32_t id) const;
  /// The bytes of one token, perhaps a part of a letter, decoded as if other tokens came before it, so that a
  /// leading space stays. Throws the errors of piece_name().
  std::string piece_bytes(int32_t id) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace ripstop
