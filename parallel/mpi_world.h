// MpiWorld: the processes that the launcher started together. All use of MPI goes through it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"

namespace ripstop {

struct MpiOptions {
  /// The command of this process: "train". run() refuses ranks with another command.
  std::string command = {};
  /// The longest time for one wait, after which the run ends with Error(kCommunication), and for one call of
  /// MPI such as MPI_Init, after which `end_process` is called. Time in which this process was stopped does
  /// not count.
  double deadline_seconds = 600;
  /// The run's directory, which may not exist yet. Ranks leave files there before MPI starts, so that an
  /// error can name missing ranks (Arrivals). Empty: no files.
  std::filesystem::path directory = {};
  /// Prints the error and ends the process, on a thread of its own, if the main thread hangs inside MPI.
  /// Called on one rank; the other ranks end silently. Empty: all ranks end silently.
  std::function<void(const Error&)> end_process = {};
  /// The longest message of MPI, whose counts are `int`. Longer messages are cut.
  int64_t piece_bytes = int64_t{1} << 30;
};

/// The place of a rank. Ranks of one node share memory.
struct RankHost {
  std::string host;
  int64_t node = 0;  ///< the lowest rank of the node
};

/// Starts the watchdog and MPI, and ends both. At most one per process. A process without a launcher is a
/// world of one and does not start MPI, which may not work there. Only the main thread may call
/// (MPI_THREAD_FUNNELED). Communicators must be destroyed before the world. Works with Open MPI 4 and 5,
/// MPICH and other libraries that keep to MPI-3. Tensors must lie in host memory.
class MpiWorld {
 public:
  /// Seconds between hearing of a failure and ending, in which the failing rank can print its error.
  static constexpr double kSecondsToEnd = 1.5;

  /// If a rank does not come, the others end with 76 after the deadline. Throws Error(kResources) if MPI
  /// cannot be called beside other threads, or if the launch has several processes but each is alone in its
  /// MPI world. Collective.
  explicit MpiWorld(const MpiOptions& options = {});
  /// Waits for all ranks and calls MPI_Finalize. Does nothing while an exception unwinds.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// All ranks, in the launcher's order: "world".
  Communicator& communicator();
  /// The places of all ranks, by rank of `communicator()`.
  const std::vector<RankHost>& places() const;
  /// The number of ranks on this rank's node.
  int64_t ranks_here() const;
  /// The place of this rank among them, from 0.
  int64_t local_rank() const;
  /// "Open MPI v4.1.4", or "none" if MPI was not started.
  std::string library() const;

  /// Sets the step that errors and the watchdog name.
  void set_step(int64_t step);
  void set_deadline(double seconds);

  /// Runs `body`, the whole command. If it throws, announces the failure to all ranks and rethrows, so that
  /// the error is printed once. The other ranks end by _exit with the error's exit code after kSecondsToEnd,
  /// silently and without MPI_Finalize, which would wait for ranks that do not come. If several ranks fail at
  /// about the same time, the lowest one rethrows and the others end. Throws Error(kUsage) on all ranks,
  /// before `body`, if their MpiOptions::command differ: their collectives would mix.
  ExitCode run(FunctionRef<ExitCode()> body);

 private:
  void tell_failure(ExitCode code);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
