// BackgroundWork: work on a thread of its own while the caller's thread goes on.
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

/// Runs a function once, on a thread that takes no signals but those of its own faults. The owner's thread
/// asks how far it is and gets what it threw.
class BackgroundWork {
 public:
  /// Starts `body`, which may ask `stop_requested()` and must then end soon. If the system gives no more
  /// threads, `body` has run when this returns.
  explicit BackgroundWork(std::function<void(const BackgroundWork& self)> body);
  /// Requests a stop and waits for the end.
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  /// Any thread may call these.
  bool is_done() const { return done_; }
  void request_stop() { stops_ = true; }
  bool stop_requested() const { return stops_; }
  /// `body` counts what it has done, so that others see whether it moves.
  void count_progress() const { ++progress_; }
  int64_t progress() const { return progress_; }
  /// `body` calls it: from now on its thread, and those that it starts, get processors that others leave
  /// free, and a tenth of one that others want (nice 10). There is no way back without privileges, so it
  /// does nothing if `body` runs on the owner's thread.
  void yield_processors() const;

  /// Waits until the work has ended, at most `most`. Returns whether it has ended.
  bool wait(std::chrono::milliseconds most);
  /// Throws what the body threw, if it did. Only when is_done().
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
