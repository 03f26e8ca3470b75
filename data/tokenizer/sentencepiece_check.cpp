#include "data/tokenizer/sentencepiece_check.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "data/tokenizer/protobuf_fields.h"

namespace ripstop {
namespace {

// Numbers of the fields in sentencepiece_model.proto.
constexpr uint32_t kNormalizerSpec = 3, kDenormalizerSpec = 5, kCharsMap = 2;

/// A map is: bytes of the trie (uint32), the trie's units (uint32 each), then texts that end in NUL.
std::string damage_of_map(std::string_view map) {
  uint32_t trie_bytes = 0;
  if (map.size() < sizeof trie_bytes) return "the character map is cut short";
  std::memcpy(&trie_bytes, map.data(), sizeof trie_bytes);
  const std::string_view rest = map.substr(sizeof trie_bytes);
  // The root alone needs a block of 256 units, and a lookup begins without a check.
  if (trie_bytes < 1024 || trie_bytes % 4 != 0 || trie_bytes >= rest.size()) {
    return fmt::format("the character map's trie has {} bytes of {}", trie_bytes, rest.size());
  }
  const uint32_t units = trie_bytes / 4;
  const std::string_view texts = rest.substr(trie_bytes);
  if (texts.back() != '\0') return "the character map's texts do not end";
  for (uint32_t i = 0; i < units; ++i) {
    uint32_t unit = 0;
    std::memcpy(&unit, rest.data() + size_t{i} * 4, 4);
    if (unit & 0x80000000u) {  // a leaf: its value is a place in the texts
      if ((unit & 0x7fffffffu) >= texts.size())
        return fmt::format("the character map's leaf {} leads outside", i);
      continue;
    }
    // A step goes to (i ^ offset) ^ byte, and so anywhere in a block of 256 units.
    const uint32_t offset = (unit >> 10) << ((unit & 0x200u) >> 6);
    if (((i ^ offset) | 0xffu) >= units) return fmt::format("the character map's unit {} leads outside", i);
  }
  return "";
}

}  // namespace

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
