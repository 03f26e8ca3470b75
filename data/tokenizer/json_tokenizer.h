// JsonTokenizer: the tokenizer in a tokenizer.json of Hugging Face's library `tokenizers`.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/spanned_token.h"
#include "data/tokenizer/tokenizer_json.h"

namespace ripstop {

/// A tokenizer whose ids and texts equal those of `tokenizers`. Several threads may call const members at
/// once.
class JsonTokenizer {
 public:
  /// Whether special added tokens, such as <s>, inside a text are read as text or as tokens. Added tokens
  /// that are not special are tokens either way.
  enum class Special : bool { kText, kTokens };

  /// `json`: bytes of a tokenizer.json. `name`: for messages. Throws Error(kInputData) if the file is damaged
  /// or too large, or if a component or value in it might give other ids than `tokenizers`. Ignores
  /// `truncation` and `padding`.
  JsonTokenizer(std::string_view json, const std::string& name)
      : JsonTokenizer(read_tokenizer_json(json, name), name) {}

  /// The highest id + 1. Ids below it may have no token.
  int64_t vocabulary_size() const { return size_; }
  /// Identifies the tokenizer: SHA-256, 64 hex digits, of all that decides ids and texts. The version of
  /// `tokenizers` that saved the file does not change the hash.
  const std::string& sha256() const { return sha256_; }

  /// The tokens of `text` without prefix() and suffix(). The end_byte of a token that ends inside a letter is
  /// the letter's end. Throws Error(kInputData) if `text` is no UTF-8, too long or slow, or a letter has no
  /// token.
  std::vector<SpannedToken> encode(std::string_view text, Special special) const;
  /// The ids that the post-processor puts before and after a text.
  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

  /// The text of `ids`: bytes that are not UTF-8 become U+FFFD. Leaves out ids without a token and, if
  /// `skip_special`, special added tokens. Throws Error(kInputData) for an id outside the vocabulary, and the
  /// errors of Regex::find().
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  /// The id of the added token `content`; nullopt if there is none.
  std::optional<int32_t> added_token(std::string_view content) const;
  bool is_special(int32_t id) const;
  /// The token in the vocabulary's spelling: "\u0120The", "\u2581The", "<0x0A>"; empty if `id` has no token.
  /// Throws Error(kInputData) for an id outside the vocabulary.
  std::string_view piece_name(int32_t id) const;
  /// The bytes of one token, perhaps a part of a letter, decoded as if other tokens came before it, so that a
  /// leading space stays. Throws the errors of decode().
  std::string piece_bytes(int32_t id) const;

 private:
  /// Memory for one thread that encodes a text.
  struct Scratch {
    TracedText text;
    StepScratch steps;
    BpeScratch bpe;
    std::vector<WordToken> word;
  };
  /// Scratches that no thread uses now.
  class ScratchPool {
   public:
    std::unique_ptr<Scratch> take();
    void give_back(std::unique_ptr<Scratch> scratch);

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Scratch>> free_;
  };

  JsonTokenizer(TokenizerJson json, const std::string& name);
  std::vector<AddedToken> with_spellings(std::vector<AddedToken> tokens) const;
  void check_id(int32_t id) const;
  std::string_view spelling(int32_t id) const;

  BpeModel model_;
  std::vector<TextStep> normalizer_, pre_tokenizer_;
  TokenDecoder decoder_;
  std::vector<int32_t> prefix_, suffix_;
  AddedTokens added_;
  int64_t size_ = 0;
  std::string sha256_;
  mutable ScratchPool scratches_;
};

}  // namespace ripstop
