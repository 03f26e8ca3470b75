// SentencePieceTokenizer: the tokenizer in a tokenizer.model.
#pragma once
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/spanned_token.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace ripstop {

/// A SentencePiece model, loaded. Several threads may call const members at once.
class SentencePieceTokenizer {
 public:
  /// `model`: bytes of a .model file. `name`: for messages. Throws Error(kInputData) if the model is damaged
  /// or has more than kLargestVocabulary pieces, or no unk, BOS or EOS.
  SentencePieceTokenizer(std::string_view model, const std::string& name);
  ~SentencePieceTokenizer();

  int64_t vocabulary_size() const { return vocabulary_size_; }
  int32_t unk() const { return unk_; }
  int32_t eos() const { return eos_; }
  /// The ids that begin an example: BOS.
  const std::vector<int32_t>& prefix() const { return prefix_; }
  /// Whether the model puts a space before each text.
  bool adds_space() const { return adds_space_; }

  /// See Tokenizer::encode.
  std::vector<int32_t> encode(std::string_view text, std::vector<int32_t> before) const;
  /// See Tokenizer::encode_with_spans.
  std::vector<SpannedToken> encode_with_spans(std::string_view text) const;
  /// The text of `ids`, without control tokens and, if adds_space(), without the space before the first word.
  /// Throws Error(kInputData) for an id outside the vocabulary.
  std::string decode(const std::vector<int32_t>& ids) const;

  /// Whether `id` is a control token (BOS, EOS), unk or unused. Here and in the next members, `id` must be
  /// below vocabulary_size().
  bool is_special(int32_t id) const;
  /// The piece in the model's spelling: "\u2581The", "<0x0A>", "<s>".
  std::string_view piece_name(int32_t id) const;
  /// The bytes of a piece that is not special: " The", "\n".
  std::string piece_bytes(int32_t id) const;

 private:
  void find_cuts(std::string_view bytes);
  bool is_cut(std::string_view text, size_t at) const;
  size_t part_end(std::string_view text, size_t begin) const;
  template <class Take>
  void for_each_part(std::string_view text, const Take& take) const;

  std::string name_;
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  int64_t vocabulary_size_ = 0;
  int32_t unk_ = 0, eos_ = 0;
  std::vector<int32_t> prefix_;
  bool adds_space_ = false;
  bool can_cut_ = false;                 // texts can be encoded in parts
  std::bitset<256> before_inner_space_;  // last bytes of letters that stand before a space inside a piece
  // Locked while a large part of a text is encoded. One large part at a time saves memory.
  mutable std::mutex large_part_;
};

}  // namespace ripstop
