#include "data/tokenizer/traced_text.h"

#include "data/text/utf8.h"

namespace ripstop {

void TracedText::clear() {
  bytes.clear();
  origins.clear();
  pieces.clear();
}

void TracedText::assign(std::string_view text) {
  bytes = text;
  origins.resize(text.size());
  pieces.clear();
  if (!text.empty()) pieces.push_back({0, text.size(), -1});
  for (size_t at = 0; at < text.size();) {
    const size_t end = at + sequence_bytes(text.substr(at, 4));
    const Origin origin{static_cast<uint32_t>(at), static_cast<uint32_t>(end)};
    while (at < end) origins[at++] = origin;
  }
}

}  // namespace ripstop
