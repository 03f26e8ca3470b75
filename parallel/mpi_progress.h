// ProgressThread: moves MPI messages while the main thread computes. Only files named mpi_* include this
// header, because it includes mpi.h.
#pragma once

// The standard has dropped the C++ bindings of MPI-2, but some headers still have them.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace ripstop::mpi {

/// The requests of messages under way, and for each the rank of the group at its other end.
struct Messages {
  std::vector<MPI_Request> requests;
  std::vector<int64_t> peers;
  int error = MPI_SUCCESS;  ///< error that the progress thread met; the main thread reports it
};

/// A thread that tests messages under way every half millisecond, and sleeps while there are none. Without
/// this thread, messages move only while the main thread calls MPI: a gather that is started before a layer
/// computes would begin only when the layer is done. Needs MPI_THREAD_SERIALIZED: whoever calls MPI while
/// messages may be under way must hold calls().
class ProgressThread {
 public:
  ProgressThread() = default;
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Starts the thread. Until then, watch() does nothing.
  void start();
  /// Ends the thread. Must be called before MPI_Finalize.
  void stop();

  /// The lock that must be held around every call of MPI.
  std::mutex& calls() { return calls_; }
  /// Makes the thread test `messages`, which must not move in memory until forget(). The caller must hold
  /// calls().
  void watch(Messages& messages);
  /// Makes the thread stop testing `messages`, if watch() was called for them. The caller must hold calls().
  void forget(const Messages& messages);

 private:
  void run();

  std::mutex calls_;
  std::condition_variable woken_;
  std::vector<Messages*> watched_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace ripstop::mpi
