// ProgressThread: moves messages under way while the main thread computes. Only files named mpi_* include
// this header, because it includes mpi.h.
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

/// Messages under way, and the rank of the group at the other end of each.
struct Messages {
  std::vector<MPI_Request> requests;
  std::vector<int64_t> peers;
  int error = MPI_SUCCESS;  ///< of the progress thread, for the main thread to report
};

/// A thread that tests messages under way every half millisecond, and sleeps while there are none. Without it
/// messages move only while the main thread calls MPI: a gather that is started before a layer computes would
/// begin when the layer is done. Needs MPI_THREAD_SERIALIZED: every call of MPI holds `calls()` while
/// messages may be under way.
class ProgressThread {
 public:
  ProgressThread() = default;
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  /// Starts the thread. Until then `watch` does nothing.
  void start();
  /// Ends the thread. Must be called before MPI_Finalize.
  void stop();

  /// Held around every call of MPI.
  std::mutex& calls() { return calls_; }
  /// Makes the thread test `messages`, which must not move until `forget`. The caller holds `calls()`.
  void watch(Messages& messages);
  /// Ends `watch`, if it was called for `messages`. The caller holds `calls()`.
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
