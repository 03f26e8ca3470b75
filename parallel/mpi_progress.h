// Only files named mpi_* include this header, because it includes mpi.h.
#pragma once

// The macros leave out the C++ bindings of MPI-2, which some headers still have.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ripstop::mpi {

/// The requests of messages under way, and the rank at the other end of each.
struct Messages {
  std::vector<MPI_Request> requests;
  std::vector<int64_t> peers;
  int error = MPI_SUCCESS;  ///< set by the progress thread; the main thread reports it
};

/// A thread that tests messages under way every half millisecond. Without the thread, messages move only
/// while the main thread calls MPI: a gather started before a layer would begin only after the layer. Needs
/// MPI_THREAD_SERIALIZED.
class ProgressThread {
 public:
  ProgressThread() = default;
  ~ProgressThread() { stop(); }
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Starts the thread. Until then, watch() does nothing.
  void start() {
    thread_ = std::thread([this] { run(); });
  }
  /// Ends the thread. Call it before MPI_Finalize.
  void stop();

  /// The lock to hold around calls of MPI while messages are watched.
  std::mutex& calls() { return calls_; }
  /// Makes the thread test `messages`, which must not move in memory until forget(). The caller holds
  /// calls().
  void watch(Messages& messages);
  /// Ends watch(), if it was called for `messages`. The caller holds calls().
  void forget(const Messages& messages) { std::erase(watched_, &messages); }

 private:
  void run();

  std::mutex calls_;
  std::condition_variable woken_;
  std::vector<Messages*> watched_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace ripstop::mpi
