// SentencePiece tokenizers: loading LLaMA's or another .model, and training.
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

/// The name of the tokenizer's file in a data set, a run, or a model of Hugging Face.
inline constexpr const char* kTokenizerFile = "tokenizer.model";

/// Whether `directory` has a tokenizer's file. Throws Error(kStorage) if the system cannot tell.
bool has_tokenizer(const std::filesystem::path& directory);

/// The most pieces of a tokenizer that is loaded or trained.
inline constexpr int64_t kLargestVocabulary = 1'000'000;

/// Whether `path` may be the name of a model on Hugging Face's hub, such as meta-llama/Llama-2-7b-hf. Names
/// of directories in ripstop's docs and configs, such as models/NAME, do not count.
bool looks_like_hub_name(const std::filesystem::path& path);

/// A token id, and the byte at which its text ends in the encoded text.
struct SpannedToken {
  int32_t id = 0;
  int64_t end_byte = 0;
};

/// The meaning of an id.
struct TokenPiece {
  std::string name;         ///< in the model's spelling: "\u2581The", "<0x0A>", "<s>"
  std::string text;         ///< the bytes that it decodes to: " The", "\n"; empty for a special token
  bool is_special = false;  ///< BOS, EOS, unk and others that stand for no text
};

/// A loaded tokenizer. Several threads may call const members at once.
class Tokenizer {
 public:
  /// Loads a SentencePiece .model file, or the tokenizer.model in the directory `path` (a Hugging Face model,
  /// a data set, a run). Throws Error(kInputData) if the file is missing, empty, damaged, over 64 MiB or over
  /// kLargestVocabulary pieces, or has no unk, BOS or EOS.
  explicit Tokenizer(const std::filesystem::path& path);
  /// Loads the bytes of a .model file; `name` is for messages.
  Tokenizer(std::string model, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// The path of the file, or the name given with its bytes.
  const std::string& name() const { return name_; }
  /// The bytes of the .model file, and their SHA-256 (64 hex digits), which identifies the tokenizer.
  const std::string& model() const { return model_; }
  const std::string& sha256() const { return sha256_; }
  int64_t vocabulary_size() const { return vocabulary_size_; }
  int32_t unk() const { return unk_; }
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }

  /// The ids of UTF-8 `text`, without BOS and EOS. Equal to those of Hugging Face's LlamaTokenizer with
  /// add_special_tokens=False, except that "<s>" in a text is text, not BOS.
  std::vector<int32_t> encode(std::string_view text) const;
  /// The ids of a space and `text`, as the continuation of other text, whether or not the model adds a space
  /// itself.
  std::vector<int32_t> encode_continuation(std::string_view text) const;
  /// The ids of encode() with their ends in `text`. Slower.
  std::vector<SpannedToken> encode_with_spans(std::string_view text) const;
  /// The text of ids, without control tokens (BOS, EOS) and without the space before the first word. Throws
  /// Error(kInputData) for an id outside the vocabulary.
  std::string decode(const std::vector<int32_t>& ids) const;
  /// The meaning of an id. The text of a byte piece may be a part of a letter. Throws as decode() does.
  TokenPiece piece(int32_t id) const;

 private:
  void load();

  std::string name_, model_, sha256_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int64_t vocabulary_size_ = 0;
  int32_t unk_ = 0, bos_ = 0, eos_ = 0;
  bool adds_space_ = false;  // the model puts a space before each text
};

/// Throws Error(kUsage) if no tokenizer can be trained to so many pieces, whatever the text.
void check_vocabulary_size(int64_t vocabulary_size);

/// Trains a BPE tokenizer by LLaMA's conventions: byte fallback, one piece a digit, no normalization, a space
/// put before each text, runs of spaces allowed as pieces, unk 0, BOS 1, EOS 2. Calls `next_line` for lines
/// until it returns false, and keeps all in memory. Returns the bytes of the .model file, which depend on the
/// lines alone. Throws Error(kUsage) if the lines have too little text or too many letters for
/// `vocabulary_size` pieces, and as check_vocabulary_size does. May take minutes, and cannot be interrupted.
std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size);

}  // namespace ripstop
