// ProgressThread: moves messages under way while the main thread computes. It includes mpi.h, so only files
// named mpi_* include it.
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
  int error = MPI_SUCCESS;  ///< that the thread met; the main thread must report it
};

/// A thread that tests messages under way every half millisecond. Without it they move only while the main
/// thread calls MPI: a gather that is started before a layer computes would begin when the layer is done. It
/// rests while nothing is under way. Needs MPI_THREAD_SERIALIZED: whoever calls MPI holds `calls()` while
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
  /// From now on the thread tests `messages`, which must stay where they are until `forget`. The caller holds
  /// `calls()`.
  void watch(Messages& messages);
  /// Ends that. May be called for messages that are not watched. The caller holds `calls()`.
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
