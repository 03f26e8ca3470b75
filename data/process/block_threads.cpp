#include "data/process/block_threads.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace ripstop {
namespace {

class BlockQueue {
 public:
  BlockQueue(int64_t count, FunctionRef<void(int64_t, int64_t)> body) : count_(count), body_(body) {}

  void work(int64_t thread) {
    for (int64_t number = take(); number < count_; number = take()) {
      std::exception_ptr failure;
      try {
        body_(thread, number);
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      ++done_;
      // Calls with lower numbers started earlier and will still end, so the lowest failed number is reported.
      if (failure && number < failed_) failed_ = number, failure_ = failure;
      if (failure) stopped_ = true;
      changed_.notify_all();
    }
  }

  // Calls tell(number of ended blocks) until all blocks have ended or one has failed, and once after that.
  void watch(FunctionRef<void(int64_t)> tell) {
    constexpr std::chrono::milliseconds kPause{100};
    for (bool ended = false; !ended;) {
      std::unique_lock lock(mutex_);
      ended = changed_.wait_for(lock, kPause, [&] { return stopped_ || done_ == count_; });
      const int64_t done = done_;
      lock.unlock();
      tell(done);
    }
  }

  // Stops the queue in the destructor: take() then returns no more numbers.
  struct Stop {
    BlockQueue& queue;
    ~Stop() {
      const std::lock_guard lock(queue.mutex_);
      queue.stopped_ = true;
    }
  };
  // Call it after the threads have ended.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Returns count_ if no number is left.
  int64_t take() {
    const std::lock_guard lock(mutex_);
    return stopped_ ? count_ : std::min(next_++, count_);
  }

  const int64_t count_;
  FunctionRef<void(int64_t, int64_t)> body_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_ = 0, done_ = 0;
  bool stopped_ = false;
  int64_t failed_ = count_;  // the lowest number whose call failed; count_ if no call failed
  std::exception_ptr failure_;
};

}  // namespace

void share_blocks(int64_t count, int64_t threads, FunctionRef<void(int64_t, int64_t)> body,
                  FunctionRef<void(int64_t)> watch) {
  if (count <= 0) return;
  BlockQueue queue(count, body);
  {
    std::vector<std::jthread> pool;
    const BlockQueue::Stop stop{queue};  // destroyed before the pool, which joins the threads
    try {
      for (int64_t t = 0; t < std::min(threads, count); ++t)
        pool.emplace_back([&queue, t] { queue.work(t); });
    } catch (const std::system_error&) {
      // The system gives no more threads: go on with the threads that have started.
    }
    if (pool.empty()) queue.work(0);
    queue.watch(watch);
  }
  queue.rethrow();
}

}  // namespace ripstop
