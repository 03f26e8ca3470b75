#include "data/process/background_work.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "data/process/blocked_signals.h"
#include "model/core/error.h"

namespace ripstop {

BackgroundWork::BackgroundWork(std::function<void(const BackgroundWork&)> body) : body_(std::move(body)) {
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    has_thread_ = false;
    run();
  }
}

BackgroundWork::~BackgroundWork() {
  request_stop();
  if (thread_.joinable()) thread_.join();
}

void BackgroundWork::run() {
  try {
    body_(*this);
  } catch (...) {
    failure_ = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  ended_.notify_all();
}

bool BackgroundWork::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, most, [&] { return is_done(); });
}

void BackgroundWork::rethrow() const {
  RIPSTOP_CHECK(is_done(), "the work goes on");
  if (failure_) std::rethrow_exception(failure_);
}

void BackgroundWork::yield_processors() const {
  if (!has_thread_) return;
  // With nice 19, saving a checkpoint beside busy processors took nearly twice the time that the disk needs.
  constexpr int kNice = 10;
  // On Linux each thread has its own nice value. If the system refuses, the old value stays.
  (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNice);
}

}  // namespace ripstop
