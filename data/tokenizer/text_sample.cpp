#include "data/tokenizer/text_sample.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "data/files/hash.h"

namespace ripstop {

void TextSample::add(std::string text) {
  const uint64_t number = next_++;
  // Hash the number, not the text: equal texts must not share a key.
  const uint64_t key = hash64(&number, sizeof number);
  if (full_ && key > texts_.rbegin()->first) return;
  bytes_ += static_cast<int64_t>(text.size());
  texts_.emplace(key, std::move(text));
  while (bytes_ > most_bytes_ && texts_.size() > 1) {
    full_ = true;
    const auto last = std::prev(texts_.end());
    bytes_ -= static_cast<int64_t>(last->second.size());
    texts_.erase(last);
  }
}

bool TextSample::next_line(std::string& line) {
  while (at_ >= current_.size()) {
    if (texts_.empty()) return false;
    current_ = std::move(texts_.begin()->second);
    texts_.erase(texts_.begin());
    at_ = 0;
  }
  const size_t end = std::min(current_.size(), current_.find('\n', at_));
  line = current_.substr(at_, end - at_);
  at_ = end + 1;
  return true;
}

}  // namespace ripstop
