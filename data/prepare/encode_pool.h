// EncodePool: encodes examples on several threads and hands them back in their order.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/dataset/token_dataset_writer.h"

namespace ripstop {

/// An example and the results of its encoder.
struct EncodedExample {
  CorpusExample source;
  TokenExample tokens;
  uint64_t pair_hash = 0;
  bool has_control = false;
};

/// Calls `encode` for examples on up to `threads` other threads at once, and `take` on the caller's thread in
/// the order of add(). Holds at most one batch of examples a thread. add() and finish() throw what `encode`
/// throws; then call neither again. The destructor drops the examples that are not taken.
class EncodePool {
 public:
  EncodePool(int64_t threads, std::function<void(EncodedExample&)> encode,
             std::function<void(EncodedExample&)> take);
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  void add(CorpusExample&& example);
  /// Waits for all examples and hands them to `take`.
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
  std::deque<std::future<Batch>> batches_;  // in order; the destructors wait for the threads
};

}  // namespace ripstop
