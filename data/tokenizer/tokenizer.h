// Tokenizer: loads and uses SentencePiece models, such as LLaMA's. Also functions that train them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ripstop {

/// Name of the tokenizer's file in the directory of a data set, a run or a Hugging Face model.
inline constexpr const char* kTokenizerFile = "tokenizer.model";

/// Whether `directory` has a file of this name. Throws Error(kStorage) if the system cannot tell.
bool has_tokenizer(const std::filesystem::path& directory);

/// The largest number of pieces of a tokenizer that is loaded or trained.
inline constexpr int64_t kLargestVocabulary = 1'000'000;

/// Whether `path` looks like the name of a model on Hugging Face's hub, such as meta-llama/Llama-2-7b-hf.
/// Names of directories in ripstop's docs and configs, such as models/NAME, do not look like one.
bool looks_like_hub_name(const std::filesystem::path& path);

/// A token id, and the byte of the encoded text at which the text of the token ends.
struct SpannedToken {
  int32_t id = 0;
  int64_t end_byte = 0;
};

/// The text that an id stands for, and whether it is special.
struct TokenPiece {
  std::string name;         ///< in the model's spelling: "\u2581The", "<0x0A>", "<s>"
  std::string text;         ///< the bytes that it decodes to: " The", "\n"; empty for a special token
  bool is_special = false;  ///< BOS, EOS, unk or another id that stands for no text
};

/// A loaded tokenizer. Several threads may call const members at once.
class Tokenizer {
 public:
  /// Loads a SentencePiece .model file, or the tokenizer.model in the directory `path` (a Hugging Face model,
  /// a data set, a run).
  /// Throws Error(kInputData) if the file is missing, empty or damaged.
  /// Throws Error(kInputData) if it has more than 64 MiB or more than kLargestVocabulary pieces.
  /// Throws Error(kInputData) if it has no unk, BOS or EOS.
  explicit Tokenizer(const std::filesystem::path& path);
  /// Loads the bytes `model` of a .model file; `name` is the name in messages.
  Tokenizer(std::string model, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The path of the loaded file, or the name that was given with its bytes.
  const std::string& name() const { return name_; }
  /// The bytes of the .model file.
  const std::string& model() const { return model_; }
  /// SHA-256 of the bytes of the .model file (64 hex digits), which identifies the tokenizer.
  const std::string& sha256() const { return sha256_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  int32_t unk() const { return unk_; }
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }

  /// The ids of `text`, which is UTF-8, without BOS and EOS. They equal those of Hugging Face's
  /// LlamaTokenizer with add_special_tokens=False, except that "<s>" in `text` is encoded as text, not as
  /// BOS.
  std::vector<int32_t> encode(std::string_view text) const;
  /// The ids of a space and `text`, encoded as the continuation of other text. They are the same whether or
  /// not the model itself adds a space.
  std::vector<int32_t> encode_continuation(std::string_view text) const;
  /// The ids of encode(), each with the byte at which its token ends in `text`. Slower than encode().
  std::vector<SpannedToken> encode_with_spans(std::string_view text) const;
  /// The text of `ids`, without control tokens (BOS, EOS) and without the space before the first word. Throws
  /// Error(kInputData) for an id outside the vocabulary.
  std::string decode(const std::vector<int32_t>& ids) const;
  /// The text and kind of an id. The text of a byte piece may be only a part of a letter. Throws
  /// Error(kInputData) for an id outside the vocabulary.
  TokenPiece piece(int32_t id) const;

 private:
  void load();

  std::string name_, model_, sha256_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int64_t vocabulary_size_ = 0;
  int32_t unk_ = 0, bos_ = 0, eos_ = 0;
  bool adds_space_ = false;  // the model puts a space before each text
};

/// Throws Error(kUsage) if a tokenizer of `vocabulary_size` pieces cannot be trained, whatever the text.
void check_vocabulary_size(int64_t vocabulary_size);

/// Trains a BPE tokenizer by LLaMA's conventions: byte fallback, one piece a digit, no normalization, a space
/// put before each text, runs of spaces allowed as pieces, unk 0, BOS 1, EOS 2. Calls next_line(line) for the
/// lines of text until it returns false, and keeps all lines in memory. Returns the bytes of the .model file,
/// which depend only on the lines and on `vocabulary_size`. May take minutes, and cannot be interrupted.
/// Throws Error(kUsage) if the lines have too little text or too many letters for `vocabulary_size` pieces.
/// Throws the errors of check_vocabulary_size().
std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size);

}  // namespace ripstop
