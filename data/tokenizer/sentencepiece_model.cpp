#include "data/tokenizer/sentencepiece_model.h"

#include <fmt/format.h>

#include <cstring>

#include "data/tokenizer/protobuf_fields.h"

namespace ripstop {
namespace {

ModelPiece read_model_piece(std::string_view message) {
  ModelPiece piece;
  for (ProtobufFields fields(message); fields.next();) {
    if (fields.number == 1) piece.text = fields.value;
    if (fields.number == 2) piece.score = fields.as_float();
    if (fields.number == 3 && fields.integer >= 1 && fields.integer <= 6)
      piece.kind = static_cast<PieceKind>(fields.integer);
  }
  return piece;
}

void read_trainer_spec(std::string_view message, SentencePieceModel& model) {
  for (ProtobufFields fields(message); fields.next();) {
    if (fields.number == 3) model.algorithm = fields.integer;
    if (fields.number == 24) model.spaces_end_words = fields.integer != 0;
    if (fields.number == 35) model.byte_fallback = fields.integer != 0;
  }
}

void read_normalizer_spec(std::string_view message, SentencePieceModel& model) {
  for (ProtobufFields fields(message); fields.next();) {
    if (fields.number == 2) model.character_map = fields.value;
    if (fields.number == 3) model.adds_space = fields.integer != 0;
    if (fields.number == 4) model.removes_extra_spaces = fields.integer != 0;
    if (fields.number == 5) model.escapes_spaces = fields.integer != 0;
  }
}

constexpr uint32_t kNormalizerSpec = 3, kDenormalizerSpec = 5, kCharsMap = 2;

/// The damage of `map`; "" if it is sound. A map has the size of the trie in bytes (uint32), the units of the
/// trie (uint32 each), and replacement texts that end in NUL.
std::string damage_of_map(std::string_view map) {
  uint32_t trie_bytes = 0;
  if (map.size() < sizeof trie_bytes) return "the character map is cut short";
  std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  const std::string_view rest = map.substr(sizeof trie_bytes);
  // Lookups read the first 256 units without a bounds check.
  if (trie_bytes < 1024 || trie_bytes % 4 != 0 || trie_bytes >= rest.size()) {
    return fmt::format("the character map's trie has {} bytes of {}", trie_bytes, rest.size());
  }
  const uint32_t units = trie_bytes / 4;
  const std::string_view texts = rest.substr(trie_bytes);
  if (texts.back() != '\0') return "the character map's texts do not end";
  for (uint32_t i = 0; i < units; ++i) {
    uint32_t unit = 0;
    std::memcpy(&unit, rest.data() + size_t{i} * 4, 4);
    if (unit & 0x80000000u) {  // a leaf: an offset into the replacement texts
      if ((unit & 0x7fffffffu) >= texts.size())
        return fmt::format("the character map's leaf {} leads outside", i);
      continue;
    }
    // A byte leads from unit i to unit (i ^ offset) ^ byte, so the block of 256 units around i ^ offset
    // must exist.
    const uint32_t offset = (unit >> 10) << ((unit & 0x200u) >> 6);
    if (((i ^ offset) | 0xffu) >= units) return fmt::format("the character map's unit {} leads outside", i);
  }
  return "";
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes) {
  SentencePieceModel model;
  for (ProtobufFields fields(bytes); fields.next();) {
    if (fields.number == 1) model.pieces.push_back(read_model_piece(fields.value));
    if (fields.number == 2) read_trainer_spec(fields.value, model);
    if (fields.number == 3) read_normalizer_spec(fields.value, model);
  }
  return model;
}

std::string find_character_map_damage(std::string_view model) {
  for (ProtobufFields fields(model); fields.next();) {
    if (fields.number != kNormalizerSpec && fields.number != kDenormalizerSpec) continue;
    for (ProtobufFields spec(fields.value); spec.next();) {
      if (spec.number != kCharsMap || spec.value.empty()) continue;
      if (const std::string what = damage_of_map(spec.value); !what.empty()) return what;
    }
  }
  return "";
}

}  // namespace ripstop
