// EncodePool: encodes examples on several threads and returns them in order.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/dataset/token_dataset_writer.h"

namespace ripstop {

/// An example and the results that the encoder computed for it.
struct EncodedExample {
  CorpusExample source;
  TokenExample tokens;
  uint64_t pair_hash = 0;
  bool has_control = false;
};

/// Calls encode(example) on up to `threads` other threads at once, and take(example) on the caller's thread,
/// in the order of add(). Holds at most one batch of examples a thread. add() and finish() throw what
/// `encode` throws; after that, call neither of them. The destructor drops the examples that were not taken.
class EncodePool {
 public:
  EncodePool(int64_t threads, std::function<void(EncodedExample&)> encode,
             std::function<void(EncodedExample&)> take);
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  /// Adds an example. May wait for the oldest batch and pass its examples to `take`.
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
  // Oldest first; the destructors of the futures wait for the threads.
  std::deque<std::future<Batch>> batches_;
};

}  // namespace ripstop
