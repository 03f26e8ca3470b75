// SentencePiece tokenizers: LLaMA's, any other .model, or one of our own.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// The file of a tokenizer in a data set, a run, and a model of Hugging Face.
inline constexpr const char* kTokenizerFile = "tokenizer.model";

/// Whether `directory` has a tokenizer's file. Throws Error(kStorage) if the system does not say.
bool has_tokenizer(const std::filesystem::path& directory);

/// Of a vocabulary that is accepted or learnt.
inline constexpr int64_t kLargestVocabulary = 1'000'000;

/// Whether `path` may be the name of a model on Hugging Face's hub, such as meta-llama/Llama-2-7b-hf. Words
/// that the docs and configs of ripstop have for directories, such as models/, are no owners on the hub.
bool looks_like_hub_name(const std::filesystem::path& path);

/// A token id and the byte at which its text ends in the encoded string.
struct SpannedToken {
  int32_t id = 0;
  int64_t end_byte = 0;
};

/// The meaning of an id.
struct TokenPiece {
  std::string name;         ///< in the model's spelling: "\u2581The", "<0x0A>", "<s>"
  std::string text;         ///< the bytes that it stands for: " The", "\n"; empty for a special token
  bool is_special = false;  ///< BOS, EOS, unk and others that no text is made of
};

/// A loaded tokenizer. Const members may be called from several threads at once.
class Tokenizer {
 public:
  /// `path` is a SentencePiece .model file, or a directory that has a tokenizer.model (a Hugging Face model,
  /// a data set, a run). Throws Error(kInputData) if the file is missing, empty, cut short, over 64 MiB or
  /// over a million pieces, if it has no unk, BOS or EOS, or if the links of its normalization table lead
  /// outside.
  explicit Tokenizer(const std::filesystem::path& path);
  /// The same from the bytes of a .model file; `name` is for messages.
  Tokenizer(std::string model, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// For messages: the file that it was read from, or the name given with its bytes.
  const std::string& name() const;
  /// The bytes of the .model file, and their SHA-256 (64 hex digits), which identifies the tokenizer.
  const std::string& model() const;
  const std::string& sha256() const;
  int64_t vocabulary_size() const;
  int32_t unk() const;
  int32_t bos() const;
  int32_t eos() const;

  /// Ids of UTF-8 `text`, without BOS and EOS. The same as of Hugging Face's LlamaTokenizer with
  /// add_special_tokens=False, except that "<s>" in a text is text and not BOS.
  std::vector<int32_t> encode(std::string_view text) const;
  /// Ids of `text` as the continuation of other text and a space, whether or not the model adds that space
  /// itself.
  std::vector<int32_t> encode_continuation(std::string_view text) const;
  /// The same ids as encode(), with the byte of `text` at which each one's text ends. Slower.
  std::vector<SpannedToken> encode_with_spans(std::string_view text) const;
  /// The text of ids; control tokens (BOS, EOS) give no text, the space before the first word is dropped.
  /// Throws Error(kInputData) for an id outside the vocabulary.
  std::string decode(const std::vector<int32_t>& ids) const;
  /// The meaning of one id. The text of a byte piece may be a part of a letter. Throws as decode() does.
  TokenPiece piece(int32_t id) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Throws Error(kUsage) for a number of pieces that no tokenizer can be trained to. Needs no text.
void check_vocabulary_size(int64_t vocabulary_size);

/// Trains a BPE tokenizer by LLaMA's conventions: byte fallback, digits split, text taken as it is, a space
/// put before it, runs of spaces allowed as pieces, unk 0, BOS 1, EOS 2. `next_line` gives the lines to learn
/// from until it returns false; all are held in memory. Returns the bytes of the .model file: the same for
/// the same lines. Throws Error(kUsage) if the lines have too little text or too many letters for
/// `vocabulary_size` pieces, and as check_vocabulary_size does. May take minutes, and cannot be interrupted.
std::string train_tokenizer(const std::function<bool(std::string&)>& next_line, int64_t vocabulary_size);

}  // namespace ripstop
