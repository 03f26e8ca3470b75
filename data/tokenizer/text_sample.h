// TextSample: a random sample of texts of bounded size, on which a tokenizer is trained.
#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace ripstop {

/// Keeps a uniform random sample of at most `most_bytes` bytes, but of at least one text. The key of a text
/// is the hash of its index in the order of add(); the texts with the smallest keys are kept. So which texts
/// are kept depends only on the order and the lengths of the texts.
class TextSample {
 public:
  explicit TextSample(int64_t most_bytes) : most_bytes_(most_bytes) {}

  /// Adds a text, which may be dropped, or may cause others to be dropped.
  void add(std::string text);
  bool empty() const { return texts_.empty(); }
  /// Size of the kept texts in bytes.
  int64_t bytes() const { return bytes_; }
  /// Moves the next line of the kept texts into `line`. Returns false after the last line. Drops each text
  /// once all of its lines were returned, so add() must not be called after it.
  bool next_line(std::string& line);

 private:
  int64_t most_bytes_;
  std::map<uint64_t, std::string> texts_;  // the kept texts, by key
  int64_t bytes_ = 0;
  uint64_t next_ = 0;
  bool full_ = false;  // a text was dropped, so texts with larger keys cannot stay
  std::string current_;
  size_t at_ = 0;
};

}  // namespace ripstop
