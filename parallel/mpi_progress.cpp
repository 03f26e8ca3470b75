#include "parallel/mpi_progress.h"

#include <chrono>

namespace ripstop::mpi {

void ProgressThread::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(calls_);
    ended_ = true;
  }
  woken_.notify_one();
  thread_.join();
}

void ProgressThread::watch(Messages& messages) {
  if (!thread_.joinable() || messages.requests.empty()) return;
  watched_.push_back(&messages);
  if (watched_.size() == 1) woken_.notify_one();
}

void ProgressThread::run() {
  // The pause is long enough not to slow down computing threads, and short compared with a layer's compute.
  constexpr std::chrono::microseconds kPause{500};
  std::unique_lock lock(calls_);
  while (!ended_) {
    if (watched_.empty()) {
      woken_.wait(lock);
      continue;
    }
    std::erase_if(watched_, [](Messages* messages) {
      int done = 0;
      messages->error = MPI_Testall(static_cast<int>(messages->requests.size()), messages->requests.data(),
                                    &done, MPI_STATUSES_IGNORE);
      return messages->error != MPI_SUCCESS || done != 0;
    });
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace ripstop::mpi
