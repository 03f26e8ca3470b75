#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace ripstop {

/// Runs a function once on a new thread that blocks signals (BlockedSignals). The owner's thread can ask for
/// progress and rethrow the exception.
class BackgroundWork {
 public:
  /// Starts body(*this), which must return soon once stop_requested() is true. If the system gives no more
  /// threads, runs `body` on the caller's thread and then returns.
  explicit BackgroundWork(std::function<void(const BackgroundWork& self)> body);
  /// Requests a stop and waits until `body` has returned.
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Any thread may call is_done(), request_stop(), stop_requested() and progress().
  bool is_done() const { return done_; }
  void request_stop() { stops_ = true; }
  bool stop_requested() const { return stops_; }
  /// Counts one more finished part of the work, so that the owner notices a standstill. Only `body` calls it.
  void count_progress() const { ++progress_; }
  int64_t progress() const { return progress_; }
  /// Lowers the calling thread, and threads that it starts later, to nice 10: they get idle processors, and a
  /// tenth of a busy one. Only `body` may call it. Does nothing on the owner's thread, which could not raise
  /// its priority again.
  void yield_processors() const;

  /// Waits for at most `most`. Returns whether the work has ended.
  bool wait(std::chrono::milliseconds most);
  /// Throws the exception that `body` threw, if any. Requires is_done().
  void rethrow() const;

 private:
  void run();

  const std::function<void(const BackgroundWork&)> body_;
  std::atomic<bool> done_ = false, stops_ = false;
  mutable std::atomic<int64_t> progress_ = 0;
  bool has_thread_ = true;  ///< false: the owner's thread runs `body_`
  std::exception_ptr failure_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread thread_;
};

}  // namespace ripstop
