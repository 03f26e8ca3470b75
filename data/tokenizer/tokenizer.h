#pragma once
#include <bitset>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/spanned_token.h"
#include "model/core/error.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ripstop {

/// Name of the file in the directory of a data set, a run or a Hugging Face model.
inline constexpr const char* kTokenizerFile = "tokenizer.model";

/// Throws Error(kStorage) if the system cannot tell.
bool has_tokenizer(const std::filesystem::path& directory);

/// The most pieces of a tokenizer that is loaded or trained.
inline constexpr int64_t kLargestVocabulary = 1'000'000;

/// Whether `path` looks like a name on Hugging Face's hub, such as meta-llama/Llama-2-7b-hf. Directory names
/// in ripstop's docs and configs, such as models/NAME, do not.
bool looks_like_hub_name(const std::filesystem::path& path);

struct TokenPiece {
  std::string name;         ///< in the model's spelling: "\u2581The", "<0x0A>", "<s>"
  std::string text;         ///< decoded: " The", "\n"; empty for a special token
  bool is_special = false;  ///< BOS, EOS, unk or another id without text
};

/// Thrown for a text that cannot be encoded, because it has no place to cut within 1 MiB.
class LongWordError : public Error {
 public:
  using Error::Error;
};

/// A loaded tokenizer. Several threads may call const members at once.
class Tokenizer {
 public:
  /// Loads a .model file, or the tokenizer.model in the directory `path`. Throws Error(kInputData) if the
  /// file is missing, empty or damaged, has more than 64 MiB or kLargestVocabulary pieces, or no unk, BOS or
  /// EOS.
  explicit Tokenizer(const std::filesystem::path& path);
  /// `model`: bytes of a .model file. `name`: for messages.
  Tokenizer(std::string model, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The path of the loaded file, or the name given with its bytes.
  const std::string& name() const { return name_; }
  /// The bytes of the .model file.
  const std::string& model() const { return model_; }
  /// Identifies the tokenizer: SHA-256 of model(), 64 hex digits.
  const std::string& sha256() const { return sha256_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  int32_t unk() const { return unk_; }
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }

  /// The ids of `text`, which is UTF-8, without BOS and EOS. They equal those of Hugging Face's
  /// LlamaTokenizer with add_special_tokens=False, except that "<s>" in `text` is encoded as text, not as
  /// BOS. Returns `before` with the ids behind it.
  ///
  /// A text of more than 64 KiB is encoded in parts, because SentencePiece takes 240 bytes of memory for a
  /// byte. The ids are the same. A part ends before a space that no piece of the vocabulary holds together
  /// with the letter in front of it. Only BPE without normalization is cut: other models might give other
  /// ids. Throws LongWordError if a part would have more than 1 MiB.
  std::vector<int32_t> encode(std::string_view text, std::vector<int32_t> before = {}) const;
  /// The ids of a space and `text`, encoded as the continuation of other text. They are the same whether or
  /// not the model itself adds a space. Returns `before` with the ids behind it. Throws as encode().
  std::vector<int32_t> encode_continuation(std::string_view text, std::vector<int32_t> before = {}) const;
  /// The ids of encode(), each with the byte at which its token ends in `text`. Slower than encode().
  std::vector<SpannedToken> encode_with_spans(std::string_view text) const;
  /// The number of ids of encode() before the first whose token ends behind `byte` of `text`.
  int64_t tokens_before(std::string_view text, int64_t byte) const;
  /// The text of `ids`, without control tokens (BOS, EOS) and without the space before the first word. Throws
  /// Error(kInputData) for an id outside the vocabulary.
  std::string decode(const std::vector<int32_t>& ids) const;
  /// The text of a byte piece may be a part of a letter. Throws Error(kInputData) for an id outside the
  /// vocabulary.
  TokenPiece piece(int32_t id) const;

 private:
  void load();
  void find_cuts();
  bool is_cut(std::string_view text, size_t at) const;
  size_t part_end(std::string_view text, size_t begin) const;
  template <class Take>
  void for_each_part(std::string_view text, const Take& take) const;
  template <class Take>
  void for_each_span(std::string_view text, const Take& take) const;

  std::string name_, model_, sha256_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int64_t vocabulary_size_ = 0;
  int32_t unk_ = 0, bos_ = 0, eos_ = 0;
  bool adds_space_ = false;              // the model puts a space before each text
  bool can_cut_ = false;                 // texts can be encoded in parts
  std::bitset<256> before_inner_space_;  // last bytes of letters that stand before a space inside a piece
  // Locked while a large part of a text is encoded. One large part at a time saves memory.
  std::unique_ptr<std::mutex> large_part_ = std::make_unique<std::mutex>();
};

/// Throws Error(kUsage) if no text can train a tokenizer of this size.
void check_vocabulary_size(int64_t vocabulary_size);

/// Trains a BPE tokenizer by LLaMA's conventions: byte fallback, one piece a digit, no normalization, a space
/// put before each text, runs of spaces allowed as pieces, unk 0, BOS 1, EOS 2. Calls next_line(line) until
/// it returns false, and keeps all lines in memory. Returns the bytes of the .model file, which depend only
/// on the lines and `vocabulary_size`. May take minutes, and cannot be interrupted. Throws Error(kUsage) if
/// the lines have too little text or too many letters for `vocabulary_size` pieces, and the errors of
/// check_vocabulary_size().
std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size);

}  // namespace ripstop
