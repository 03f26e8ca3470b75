// BackgroundWork: a function on a thread of its own while the owner's thread goes on.
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

/// Runs a function once, on a new thread that takes no signals except those of its own faults
/// (BlockedSignals). The owner's thread follows its progress and rethrows its exception.
class BackgroundWork {
 public:
  /// Starts `body`, which must end soon once `stop_requested()` is true. If the system gives no more threads,
  /// runs `body` on the caller's thread and returns after it.
  explicit BackgroundWork(std::function<void(const BackgroundWork& self)> body);
  /// Requests a stop and waits for the end.
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Any thread may call these five.
  bool is_done() const { return done_; }
  void request_stop() { stops_ = true; }
  bool stop_requested() const { return stops_; }
  /// `body` calls it for each part that is done: `progress()` tells whether it stands still.
  void count_progress() const { ++progress_; }
  int64_t progress() const { return progress_; }
  /// For `body`: its thread, and threads that it starts later, give way to others (nice 10): they get idle
  /// processors, and a tenth of a busy one. Cannot be undone without privileges, so it does nothing if `body`
  /// runs on the owner's thread.
  void yield_processors() const;

  /// Waits until the work has ended, but no longer than `most`. Returns whether it has ended.
  bool wait(std::chrono::milliseconds most);
  /// Throws the exception that `body` threw, if any. Call it only when is_done().
  void rethrow() const;

 private:
  void run();

  const std::function<void(const BackgroundWork&)> body_;
  std::atomic<bool> done_ = false, stops_ = false;
  mutable std::atomic<int64_t> progress_ = 0;
  bool has_thread_ = true;  ///< set before body_ runs
  std::exception_ptr failure_;
  std::mutex mutex_;  ///< for `ended_`
  std::condition_variable ended_;
  std::thread thread_;
};

}  // namespace ripstop
