#include "data/prepare/encode_pool.h"

#include <utility>

namespace ripstop {
namespace {

/// A batch is worth a hand-over at either of these.
// A lock for each example would cost more than encoding a short one.
constexpr size_t kBatchExamples = 128;
constexpr int64_t kBatchBytes = 256 << 10;

}  // namespace

EncodePool::EncodePool(int64_t threads, std::function<void(EncodedExample&)> encode,
                       std::function<void(EncodedExample&)> take)
    : encode_(std::move(encode)), take_(std::move(take)), most_batches_(static_cast<size_t>(4 * threads)) {
  for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

EncodePool::~EncodePool() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

void EncodePool::work() {
  for (;;) {
    Batch* batch = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      batch = waiting_.front();
      waiting_.pop_front();
    }
    // Keep a failure in its batch. take_first() throws it on the caller's thread, in the order of the corpus:
    // the same input fails at the same example for any number of threads.
    std::exception_ptr failure;
    try {
      for (EncodedExample& example : batch->examples) encode_(example);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    batch->failure = failure;
    batch->done = true;
    changed_.notify_all();
  }
}

void EncodePool::submit() {
  const std::lock_guard lock(mutex_);
  batches_.push_back(std::exchange(filling_, {}));
  waiting_.push_back(&batches_.back());
  changed_.notify_all();
}

void EncodePool::take_first() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return batches_.front().done; });
  }
  // Without the lock: the batch is done, and only this thread adds and removes batches.
  Batch& batch = batches_.front();
  if (batch.failure) std::rethrow_exception(batch.failure);
  for (EncodedExample& example : batch.examples) take_(example);
  const std::lock_guard lock(mutex_);
  batches_.pop_front();
}

void EncodePool::add(CorpusExample&& example) {
  filling_.bytes += static_cast<int64_t>(example.document.size() + example.summary.size());
  filling_.examples.push_back({std::move(example), {}, 0, false});
  if (filling_.examples.size() < kBatchExamples && filling_.bytes < kBatchBytes) return;
  submit();
  // Encoding may be slower than reading: wait here, so that memory stays bounded.
  while (batches_.size() >= most_batches_) take_first();
}

void EncodePool::finish() {
  if (!filling_.examples.empty()) submit();
  while (!batches_.empty()) take_first();
}

}  // namespace ripstop
