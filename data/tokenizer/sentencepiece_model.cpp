#include "data/tokenizer/sentencepiece_model.h"

#include <utility>

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

// TrainerSpec.
void read_training(std::string_view message, SentencePieceModel& model) {
  for (ProtobufFields fields(message); fields.next();) {
    if (fields.number == 3) model.algorithm = fields.integer;
    if (fields.number == 24) model.spaces_end_words = fields.integer != 0;
    if (fields.number == 35) model.byte_fallback = fields.integer != 0;
  }
}

// NormalizerSpec.
void read_normalization(std::string_view message, SentencePieceModel& model) {
  for (ProtobufFields fields(message); fields.next();) {
    if (fields.number == 2) model.character_map = fields.value;
    if (fields.number == 3) model.adds_space = fields.integer != 0;
    if (fields.number == 4) model.removes_extra_spaces = fields.integer != 0;
    if (fields.number == 5) model.escapes_spaces = fields.integer != 0;
  }
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes) {
  SentencePieceModel model;
  for (ProtobufFields fields(bytes); fields.next();) {
    if (fields.number == 1) model.pieces.push_back(read_model_piece(fields.value));
    if (fields.number == 2) read_training(fields.value, model);
    if (fields.number == 3) read_normalization(fields.value, model);
  }
  return model;
}

}  // namespace ripstop
