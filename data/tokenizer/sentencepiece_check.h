// Checks a SentencePiece model before its library reads it.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// A SentencePiece model may carry a compiled character map: a double-array trie and the replacement texts.
/// SentencePiece follows the trie's links and reads the texts without bounds checks, so a damaged or hostile
/// map makes it read outside of memory. Returns what is wrong with the map in the serialized `model`, or ""
/// if it is sound or absent. Does not check the rest of `model`: the library refuses what is no protobuf
/// message. Source: sentencepiece_model.proto (NormalizerSpec.precompiled_charsmap); the unit layout of
/// darts-clone.
std::string find_character_map_damage(std::string_view model);

}  // namespace ripstop
