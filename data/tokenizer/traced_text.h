#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// The bytes of the original text for which a byte of the changed text stands.
struct Origin {
  uint32_t begin = 0, end = 0;
};

/// The bytes [begin, end) of a TracedText.
struct TextPiece {
  size_t begin = 0, end = 0;
  int32_t id = -1;  ///< id of an added token; -1: text
};

/// A text that is changed and cut into pieces, while each byte keeps its origin. All bytes of a letter have
/// the same origin.
class TracedText {
 public:
  /// Requires valid UTF-8 of less than 4 GiB. The text becomes one piece, or none if it is empty.
  void assign(std::string_view text);
  void clear();

  std::string_view view(const TextPiece& piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.end - piece.begin);
  }
  /// Appends the bytes [begin, end) of `source` with their origins.
  void copy(const TracedText& source, size_t begin, size_t end) {
    bytes.append(source.bytes, begin, end - begin);
    origins.insert(origins.end(), source.origins.begin() + static_cast<ptrdiff_t>(begin),
                   source.origins.begin() + static_cast<ptrdiff_t>(end));
  }
  void append(std::string_view text, Origin origin) {
    bytes += text;
    origins.insert(origins.end(), text.size(), origin);
  }

  std::string bytes;
  std::vector<Origin> origins;    // one for each byte
  std::vector<TextPiece> pieces;  // in order
};

}  // namespace ripstop
