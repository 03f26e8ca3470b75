// Facts in a SentencePiece model, for files that describe it to other libraries.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Kinds of pieces; the numbers are those of sentencepiece_model.proto.
enum class PieceKind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// One piece; its id is its place in the list.
struct ModelPiece {
  std::string text;  ///< in the model's spelling: "\u2581The"
  float score = 0;
  PieceKind kind = PieceKind::kNormal;
};

/// Pieces and settings of a model. Defaults are those of sentencepiece_model.proto.
struct SentencePieceModel {
  static constexpr uint64_t kBpe = 2;  ///< of `algorithm`

  std::vector<ModelPiece> pieces;
  uint64_t algorithm = 1;  ///< 1 unigram, 2 BPE, 3 words, 4 letters
  bool byte_fallback = false;
  bool spaces_end_words = false;  ///< treat_whitespace_as_suffix
  std::string character_map;      ///< precompiled_charsmap; empty if texts are taken as they are
  bool adds_space = true;         ///< add_dummy_prefix
  bool removes_extra_spaces = true;
  bool escapes_spaces = true;
};

/// Reads the bytes of a .model file. What is damaged is left out: Tokenizer refuses such a model. Source:
/// https://github.com/google/sentencepiece, src/sentencepiece_model.proto.
SentencePieceModel read_sentencepiece_model(std::string_view bytes);

}  // namespace ripstop
