#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace ripstop {

/// Keeps a random sample of at most `most_bytes` bytes, but of at least one text. A text's key is the hash of
/// its index in the order of add(); the texts with the smallest keys are kept. The choice depends only on the
/// order and lengths of the texts.
class TextSample {
 public:
  explicit TextSample(int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// May drop `text` or earlier texts.
  void add(std::string text);
  bool empty() const { return texts_.empty(); }
  int64_t bytes() const { return bytes_; }
  /// Stores the next line in `line`. Returns false after the last. Drops returned texts, so do not call
  /// add() later.
  bool next_line(std::string& line);

 private:
  int64_t most_bytes_;
  std::map<uint64_t, std::string> texts_;  // by key
  int64_t bytes_ = 0;
  uint64_t next_ = 0;
  bool full_ = false;  // a text was dropped: keys above all in texts_ are refused
  std::string current_;
  size_t at_ = 0;
};

}  // namespace ripstop
