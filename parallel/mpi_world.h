// MpiWorld: the processes that the launcher started together. All of ripstop uses MPI through it.
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

/// Options of MpiWorld.
struct MpiOptions {
  /// The command of this process, such as "train". run() refuses ranks with different commands.
  std::string command = {};
  /// The longest time for one wait, after which the run ends with Error(kCommunication). Also the longest
  /// time for one call of MPI, such as MPI_Init, after which the process ends through `end_process`. Time in
  /// which this process was suspended does not count.
  double deadline_seconds = 600;
  /// The directory of the run, which may not exist yet. Ranks leave files near it before MPI starts, so that
  /// an error can name missing ranks (Arrivals). If empty, they leave no files.
  std::filesystem::path directory = {};
  /// Function that prints the error and ends the process, called on a thread of its own if the main thread
  /// hangs inside MPI. Called on one rank; the other ranks end silently. If empty, all ranks end silently.
  std::function<void(const Error&)> end_process = {};
  /// The longest message of MPI in bytes, whose counts are `int`. Longer messages are cut into pieces.
  int64_t piece_bytes = int64_t{1} << 30;
};

/// The host and the node of a rank. Ranks of one node share memory.
struct RankHost {
  std::string host;
  int64_t node = 0;  ///< lowest rank on the same node, which identifies the node
};

/// Starts the watchdog and MPI, and ends both. A process may have at most one MpiWorld. A process without a
/// launcher is a world of one rank and does not start MPI, which may not work there. Only the main thread may
/// call it (MPI_THREAD_FUNNELED). Communicators must be destroyed before the world. Works with Open MPI 4 and
/// 5, MPICH and other libraries that keep to MPI-3. Tensors must lie in host memory.
class MpiWorld {
 public:
  /// Seconds from hearing of another rank's failure to the end of this process, so that the failing rank can
  /// print its error first.
  static constexpr double kSecondsToEnd = 1.5;

  /// Starts MPI with all ranks of the launch. If a rank does not come, the others end with exit code 76 after
  /// the deadline. Collective.
  /// Throws Error(kResources) if MPI cannot be called beside other threads.
  /// Throws Error(kResources) if the launch has several processes, but each is alone in its MPI world.
  explicit MpiWorld(const MpiOptions& options = {});
  /// Waits for all ranks and calls MPI_Finalize. Does nothing while an exception unwinds.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// The communicator "world" of all ranks, in the launcher's order.
  Communicator& communicator();
  /// Host and node of each rank, indexed by rank of communicator().
  const std::vector<RankHost>& places() const;
  /// The number of ranks on this rank's node.
  int64_t ranks_here() const;
  /// The index of this rank among the ranks on its node, from 0.
  int64_t local_rank() const;
  /// Name and version of the MPI library: "Open MPI v4.1.4"; "none" if MPI was not started.
  std::string library() const;

  /// Sets the step that errors and the watchdog name from now on.
  void set_step(int64_t step);
  void set_deadline(double seconds);

  /// Runs `body`, which is the whole command. If `body` throws, announces the failure to all ranks and
  /// rethrows the exception, so that it is printed once. The other ranks end silently after kSecondsToEnd, by
  /// _exit with the exit code of the error: MPI_Finalize would wait for ranks that do not come. If several
  /// ranks fail at about the same time, the lowest rethrows and the others end. If the MpiOptions::command of
  /// ranks differ, throws Error(kUsage) on all ranks before `body`: their collectives would mix.
  ExitCode run(FunctionRef<ExitCode()> body);

 private:
  void tell_failure(ExitCode code);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
