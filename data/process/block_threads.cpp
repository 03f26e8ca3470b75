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

// The numbers, and how far they are. Threads share it.
class BlockQueue {
 public:
  BlockQueue(int64_t count, FunctionRef<void(int64_t, int64_t)> body) : count_(count), body_(body) {}

  // Takes numbers until there are none.
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
      // Lower numbers were begun before this one, and end: the lowest failure wins whichever came first.
      if (failure && number < failed_) failed_ = number, failure_ = failure;
      if (failure) stopped_ = true;
      changed_.notify_all();
    }
  }

  // On the caller's thread.
  void watch(FunctionRef<void(int64_t)> tell) {
    constexpr std::chrono::milliseconds kPause{100};
    // Also if all have ended before this thread came here: the last number is always told.
    for (bool ended = false; !ended;) {
      std::unique_lock lock(mutex_);
      ended = changed_.wait_for(lock, kPause, [&] { return stopped_ || done_ == count_; });
      const int64_t done = done_;
      lock.unlock();
      tell(done);
    }
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  // After the threads.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
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
  int64_t failed_ = count_;  // the lowest number that failed
  std::exception_ptr failure_;
};

// Threads of one queue. The destructor ends them early; nothing may be under way when the queue goes.
class BlockThreads {
 public:
  BlockThreads(BlockQueue& queue, int64_t threads) : queue_(queue) {
    try {
      for (int64_t t = 0; t < threads; ++t) threads_.emplace_back([this, t] { queue_.work(t); });
    } catch (const std::system_error&) {
      // The system gives no more threads: those that there are do the work.
    } catch (...) {
      end();
      throw;
    }
  }
  ~BlockThreads() { end(); }
  BlockThreads(const BlockThreads&) = delete;
  BlockThreads& operator=(const BlockThreads&) = delete;

  bool empty() const { return threads_.empty(); }
  void join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void end() {
    queue_.stop();
    join();
  }

  BlockQueue& queue_;
  std::vector<std::thread> threads_;
};

}  // namespace

void share_blocks(int64_t count, int64_t threads, FunctionRef<void(int64_t, int64_t)> body,
                  FunctionRef<void(int64_t)> watch) {
  if (count <= 0) return;
  BlockQueue queue(count, body);
  {
    BlockThreads pool(queue, std::min(threads, count));
    if (pool.empty()) queue.work(0);
    queue.watch(watch);
    pool.join();
  }
  queue.rethrow();
}

}  // namespace ripstop
