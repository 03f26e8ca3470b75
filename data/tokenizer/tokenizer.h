#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/spanned_token.h"
#include "data/tokenizer/tokenizer_files.h"
#include "model/core/error.h"

namespace ripstop {

class JsonTokenizer;
class SentencePieceTokenizer;

/// Maximum number of pieces of a tokenizer to load or train.
inline constexpr int64_t kLargestVocabulary = 1'000'000;

struct TokenPiece {
  std::string name;         ///< in the model's spelling: "\u2581The", "<0x0A>", "<s>"
  std::string text;         ///< decoded: " The", "\n"; empty for a special token
  bool is_special = false;  ///< control, unk or unused; in a tokenizer.json: a special added token
};

/// Thrown for a text that cannot be encoded, such as one without a place to cut within 1 MiB, or one on which
/// a regular expression of tokenizer.json takes too long.
class LongWordError : public Error {
 public:
  using Error::Error;
};

/// A loaded tokenizer: a SentencePiece model, or a tokenizer.json. Several threads may call const members at
/// once. How to add a kind: CONTRIBUTING.md.
class Tokenizer {
 public:
  /// Loads the file or directory `path` (read_tokenizer_files). `choice` overrides what the files beside it
  /// say. If a directory's tokenizer.json is damaged or unsupported, loads the tokenizer.model beside it.
  /// Throws Error(kInputData) if the file is absent, empty, damaged, unsupported or over 64 MiB, has over
  /// kLargestVocabulary pieces, or is a .model without unk, BOS or EOS, if the end token to use is missing,
  /// or if a file beside it is damaged; Error(kUsage) if a .model is to read special tokens; Error(kStorage)
  /// if a read fails.
  explicit Tokenizer(const std::filesystem::path& path, const TokenizerChoice& choice = {});
  /// `model`: bytes of a .model file or of a tokenizer.json. `name`: for messages.
  Tokenizer(std::string model, const std::string& name, const TokenizerChoice& choice = {});
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The path of the loaded file, or the name given with its bytes.
  const std::string& name() const { return name_; }
  /// The bytes of the .model file or of tokenizer.json.
  const std::string& model() const { return files_.carried.front().second; }
  /// All files that travel with the tokenizer.
  const TokenizerFiles& files() const { return files_; }
  /// Sets TokenizerFiles::questions and, if given, stores them in the carried files.
  void carry_questions(const std::optional<TokenizerChoice>& questions);
  bool is_sentencepiece() const { return sentencepiece_ != nullptr; }
  /// Notes for people: how the end token was found, what in the files is ignored, and whether a
  /// tokenizer.model is read instead of the tokenizer.json beside it, or gives other ids.
  std::vector<std::string> notes() const;
  /// Identifies the tokenizer, 64 hex digits: SHA-256 of a .model file, or JsonTokenizer::sha256. End token
  /// and TokenizerChoice do not count.
  const std::string& sha256() const { return sha256_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  /// The tokens that begin an example without a chat template: usually BOS, or none; sometimes several.
  const std::vector<int32_t>& begin() const { return begin_; }
  /// The token that ends an example without a chat template. Throws Error(kInputData) if it is not known.
  int32_t eos() const;
  bool has_eos() const { return eos_.has_value(); }
  /// Whether names of special tokens in a text are encoded as these tokens, not as text.
  bool reads_special_tokens() const { return files_.choice.reads_special_tokens.value_or(false); }

  /// The ids of `text`, which is UTF-8, without begin() and eos(). They equal the ids of Hugging Face's
  /// tokenizers with add_special_tokens=False, but special tokens such as "<s>" in `text` are encoded as text
  /// unless reads_special_tokens(). Returns `before` followed by the ids.
  ///
  /// SentencePiece takes 240 bytes of memory for each byte, so most BPE models without normalization encode a
  /// text of more than 64 KiB in parts. The ids stay the same: a part ends before a space that no piece holds
  /// together with the letter before it. Throws LongWordError, as for a part over 1 MiB.
  std::vector<int32_t> encode(std::string_view text, std::vector<int32_t> before = {}) const;
  /// The ids of one space and `text`; no second space if the model itself adds one. Returns `before` followed
  /// by the ids. Throws the errors of encode().
  std::vector<int32_t> encode_continuation(std::string_view text, std::vector<int32_t> before = {}) const;
  /// The ids of encode(), each with its token's end in `text` (SpannedToken). Slower than encode() for
  /// SentencePiece. Throws the errors of encode().
  std::vector<SpannedToken> encode_with_spans(std::string_view text) const;
  /// The number of encode()'s tokens that lie within the first `byte` bytes of `text`.
  int64_t tokens_before(std::string_view text, int64_t byte) const;
  /// The text of `ids`, valid UTF-8, without control tokens and special added tokens. Some tokenizers, such
  /// as SentencePiece's, leave out the space before the first word. Throws the errors of piece().
  std::string decode(const std::vector<int32_t>& ids) const;
  /// The token with `id`; its text may be a part of a letter. Throws Error(kInputData) for an id outside the
  /// vocabulary, and the errors of Regex::find().
  TokenPiece piece(int32_t id) const;
  /// The id of the token with this TokenPiece::name; nullopt if there is none.
  std::optional<int32_t> id_of(std::string_view name) const;

 private:
  template <class Use>
  auto of_kind(const Use& use) const;
  void load(const TokenizerChoice& choice);
  void load_sentencepiece();
  void load_json();
  std::vector<SpannedToken> encode_json(std::string_view text) const;
  void check_id(int32_t id) const;

  std::string name_, sha256_;
  TokenizerFiles files_;
  std::vector<std::string> notes_;
  std::unique_ptr<const SentencePieceTokenizer> sentencepiece_;  // exactly one of this and json_ is set
  std::unique_ptr<const JsonTokenizer> json_;
  int64_t vocabulary_size_ = 0;
  std::vector<int32_t> begin_;
  std::optional<int32_t> eos_;
  std::string no_end_;       // why eos_ is not known
  bool adds_space_ = false;  // the tokenizer puts a space before each text
};

/// The first of a few fixed texts that `one` and `other` encode differently; "" if there is none.
std::string text_told_apart(const Tokenizer& one, const Tokenizer& other);

/// Throws Error(kUsage) for fewer than 300 or more than kLargestVocabulary pieces.
void check_vocabulary_size(int64_t vocabulary_size);

/// Trains a BPE tokenizer by LLaMA's conventions: byte fallback, a piece for each digit, no normalization, a
/// space put before each text, runs of spaces allowed as pieces, unk 0, BOS 1, EOS 2. Calls next_line(line)
/// until it returns false, and keeps all lines in memory. Returns the bytes of the .model file, which depend
/// only on the lines and `vocabulary_size`. May take minutes, and cannot be interrupted. Throws Error(kUsage)
/// if the text is too short or has too many different letters for `vocabulary_size` pieces, and the errors of
/// check_vocabulary_size().
std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size);

}  // namespace ripstop
