#include "data/prepare/encode_pool.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ripstop {
namespace {

// A batch with this many examples or bytes is full. Less work would not be worth the start of a thread.
constexpr size_t kBatchExamples = 512;
constexpr int64_t kBatchBytes = 1 << 20;
// submit() waits while the texts of all batches exceed both this size and two full batches for each thread.
// The ids of a text may take four times as many bytes as the text.
constexpr int64_t kMostBytes = int64_t{16} << 20;

}  // namespace

EncodePool::EncodePool(int64_t threads, std::function<void(EncodedExample&)> encode,
                       std::function<void(EncodedExample&)> take)
    : encode_(std::move(encode)), take_(std::move(take)), threads_(static_cast<size_t>(threads)) {}

EncodePool::Batch EncodePool::wait_for_first() {
  std::future<Batch> first = std::move(batches_.front());
  batches_.pop_front();
  bytes_.pop_front();
  return first.get();
}

void EncodePool::take_all(Batch batch) {
  for (EncodedExample& example : batch) take_(example);
}

void EncodePool::submit() {
  const int64_t most = std::max(kMostBytes, 2 * kBatchBytes * static_cast<int64_t>(threads_));
  // Waits for the oldest batch, so that the first bad example's error is thrown, for any number of threads.
  while (!batches_.empty() && std::accumulate(bytes_.begin(), bytes_.end(), filling_bytes_) > most)
    take_all(wait_for_first());
  Batch first;
  if (batches_.size() == threads_) first = wait_for_first();
  bytes_.push_back(std::exchange(filling_bytes_, 0));
  // If no thread can be started, libstdc++ defers the call: get() then encodes.
  batches_.push_back(std::async(std::launch::async | std::launch::deferred,
                                [this, batch = std::exchange(filling_, {})]() mutable {
                                  for (EncodedExample& example : batch) encode_(example);
                                  return std::move(batch);
                                }));
  take_all(std::move(first));
}

void EncodePool::add(CorpusExample&& example) {
  filling_bytes_ += static_cast<int64_t>(example.document.size() + example.summary.size());
  for (const Message& turn : example.conversation) filling_bytes_ += std::ssize(turn.content);
  filling_.emplace_back().source = std::move(example);
  if (filling_.size() >= kBatchExamples || filling_bytes_ >= kBatchBytes) submit();
}

void EncodePool::finish() {
  if (!filling_.empty()) submit();
  while (!batches_.empty()) take_all(wait_for_first());
}

}  // namespace ripstop
