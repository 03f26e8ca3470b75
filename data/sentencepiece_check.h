// A check of the one table inside a SentencePiece model that its library follows without looking.
#pragma once
#include <string>
#include <string_view>

namespace ripstop {

/// A SentencePiece model may carry a compiled character map: a double-array trie and the replacement texts.
/// Its library follows the trie's links and reads the texts without bounds checks, so a damaged or hostile
/// map makes it read outside of memory. Returns what is wrong with the map in the serialized `model`, or ""
/// where it is sound or absent. A `model` that is not a message at all is left to the library to refuse.
/// Source: sentencepiece_model.proto (NormalizerSpec.precompiled_charsmap); the unit layout of darts-clone.
std::string find_character_map_damage(std::string_view model);

}  // namespace ripstop
