// TextSample: a random sample of texts, bounded in size, for training a tokenizer.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace ripstop {

/// Keeps a uniform random sample of at most `most_bytes`, but at least one text. The key of a text is the
/// hash of its index in the order of add(); the texts with the smallest keys stay. So the sample depends only
/// on the order.
class TextSample {
 public:
  explicit TextSample(int64_t most_bytes) : most_bytes_(most_bytes) {}

  void add(std::string text);
  bool empty() const { return texts_.empty(); }
  /// Bytes of the kept texts.
  int64_t bytes() const { return bytes_; }
  /// Moves the next line of the kept texts into `line`; false after the last. Drops texts that it has
  /// returned, so do not call add() after it.
  bool next_line(std::string& line);

 private:
  int64_t most_bytes_;
  std::map<uint64_t, std::string> texts_;  // by key
  int64_t bytes_ = 0;
  uint64_t next_ = 0;
  bool full_ = false;  // a text was dropped: larger keys cannot stay
  std::string current_;
  size_t at_ = 0;
};

}  // namespace ripstop
