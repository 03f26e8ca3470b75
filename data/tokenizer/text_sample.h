// TextSample: a bounded choice of texts for training a tokenizer.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace ripstop {

/// Keeps at most `most_bytes` of the texts it is given, evenly spread over all of them, but always at least
/// one.
///
/// Each text has a key, the hash of its place in the order of add(). The texts with the smallest keys stay:
/// they are a random sample that depends on the order alone.
class TextSample {
 public:
  explicit TextSample(int64_t most_bytes) : most_bytes_(most_bytes) {}

  void add(std::string text);
  bool empty() const { return texts_.empty(); }
  /// Bytes of the kept texts.
  int64_t bytes() const { return bytes_; }
  /// Moves the next line of the kept texts into `line`; false after the last. Forgets what it has given, so
  /// call add() no more after it.
  bool next_line(std::string& line);

 private:
  int64_t most_bytes_;
  std::map<uint64_t, std::string> texts_;  // by key
  int64_t bytes_ = 0;
  uint64_t next_ = 0;
  bool full_ = false;  // a text was dropped: larger keys can no longer stay
  std::string current_;
  size_t at_ = 0;
};

}  // namespace ripstop
