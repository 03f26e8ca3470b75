#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/dataset/token_dataset_writer.h"

namespace ripstop {

struct EncodedExample {
  CorpusExample source;
  TokenExample tokens;
  uint64_t pair_hash = 0;        ///< hash of the texts, to find duplicates
  bool has_control = false;      ///< SplitReport::control_characters counts the example
  bool has_long_word = false;    ///< encoding threw LongWordError; `tokens` is empty
  std::string refusal;           ///< text of that or a ConversationError, with `tokens` empty; "" if none
  std::string name_in_document;  ///< name of a special token in a text that is no answer; "" if none
  std::string name_in_answer;    ///< likewise in an answer: a summary or a turn of the assistant
};

/// Calls encode(example) on up to `threads` other threads (on the caller's if none can be started), and
/// take(example) on the caller's thread, in the order of add(). Holds at most `threads` + 1 batches. add()
/// and finish() throw what `encode` and `take` throw; after that, call neither. The destructor drops examples
/// that were not taken.
class EncodePool {
 public:
  EncodePool(int64_t threads, std::function<void(EncodedExample&)> encode,
             std::function<void(EncodedExample&)> take);
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  /// May wait for the oldest batches and pass their examples to `take`.
  void add(CorpusExample&& example);
  /// Waits until all examples are encoded and passes them to `take`.
  void finish();

 private:
  using Batch = std::vector<EncodedExample>;
  void submit();
  Batch wait_for_first();
  void take_all(Batch batch);

  std::function<void(EncodedExample&)> encode_, take_;
  size_t threads_;
  Batch filling_;
  int64_t filling_bytes_ = 0;
  std::deque<int64_t> bytes_;  // bytes of text in each batch
  // Oldest first; the destructors of the futures wait for the threads.
  std::deque<std::future<Batch>> batches_;
};

}  // namespace ripstop
