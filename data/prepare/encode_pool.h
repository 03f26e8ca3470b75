// EncodePool: encodes examples on several threads and hands them back in their order.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
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

/// add() takes examples in order. `encode` runs on the pool's threads, on several examples at once. `take`
/// runs on the thread that calls add() and finish(), in the order of add(). At most a few batches a thread
/// are in flight. If `encode` throws, add() or finish() throws the same. The destructor drops examples that
/// are not done.
class EncodePool {
 public:
  EncodePool(int64_t threads, std::function<void(EncodedExample&)> encode,
             std::function<void(EncodedExample&)> take);
  ~EncodePool();
  EncodePool(const EncodePool&) = delete;
  EncodePool& operator=(const EncodePool&) = delete;

  void add(CorpusExample&& example);
  /// Waits for all examples and hands them to `take`.
  void finish();

 private:
  struct Batch {
    std::vector<EncodedExample> examples;
    int64_t bytes = 0;
    bool done = false;
    std::exception_ptr failure;
  };
  void work();
  void submit();
  void take_first();

  std::function<void(EncodedExample&)> encode_, take_;
  size_t most_batches_;
  Batch filling_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> batches_;  // in order; references stay valid while others come and go at the ends
  std::deque<Batch*> waiting_;
  bool ending_ = false;  // the destructor waits for the threads
  std::vector<std::thread> threads_;
};

}  // namespace ripstop
