#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Kinds of pieces, numbered as in sentencepiece_model.proto.
enum class PieceKind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

/// A piece of the vocabulary. Its id is its index in the model.
struct ModelPiece {
  std::string text;  ///< in the model's spelling: "\u2581The"
  float score = 0;
  PieceKind kind = PieceKind::kNormal;
};

/// Pieces and settings of a model. Defaults, and names in comments, are from sentencepiece_model.proto.
struct SentencePieceModel {
  static constexpr uint64_t kBpe = 2;

  std::vector<ModelPiece> pieces;
  uint64_t algorithm = 1;  ///< model_type: 1 unigram, 2 (kBpe) BPE, 3 words, 4 letters
  bool byte_fallback = false;
  bool spaces_end_words = false;  ///< treat_whitespace_as_suffix
  std::string character_map;      ///< precompiled_charsmap; empty if there is none
  bool adds_space = true;         ///< add_dummy_prefix
  bool removes_extra_spaces = true;
  bool escapes_spaces = true;
};

/// Reads a .model file. Does not report damage: Tokenizer refuses a damaged file. Source:
/// https://github.com/google/sentencepiece, src/sentencepiece_model.proto.
SentencePieceModel read_sentencepiece_model(std::string_view bytes);

/// Describes the damage of a character map in a .model file; "" if all are sound or absent. Call it before
/// SentencePiece loads the model: the library follows the links in the map, a double-array trie with
/// replacement texts, without bounds checks. Source: the unit layout of darts-clone.
std::string find_character_map_damage(std::string_view model);

}  // namespace ripstop
