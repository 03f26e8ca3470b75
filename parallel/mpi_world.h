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
  /// The command that this process was started for: "train". run() refuses ranks that do not agree.
  std::string command = {};
  /// How long one wait may take before the run ends with Error(kCommunication), and a call of MPI that waits,
  /// such as MPI_Init, before `end_process` is called. Time in which this process itself was stopped does not
  /// count.
  double deadline_seconds = 600;
  /// The run's directory, which may be absent: ranks tell there that they have come to the start of MPI, so
  /// that an error can name those that have not (Arrivals). Empty: nothing is known of them.
  std::filesystem::path directory = {};
  /// Tells the error and ends the process, on a thread of its own, if the main thread hangs inside MPI and
  /// can throw nothing. Called on one rank; the others end without a word. Empty: so does that one.
  std::function<void(const Error&)> end_process = {};
  /// The longest message. Longer ones are cut, because MPI-3 counts are `int`.
  int64_t piece_bytes = int64_t{1} << 30;
};

/// Where a rank runs. Ranks of one node share memory.
struct RankHost {
  std::string host;
  int64_t node = 0;  ///< lowest rank of that node
};

/// Starts the watchdog and MPI, and ends both. At most one per process. A process that no launcher started is
/// a world of one and does not start MPI, which may not work there. Only the main thread may call
/// (MPI_THREAD_FUNNELED). Communicators must be destroyed before the world. Works with Open MPI 4 and 5,
/// MPICH and other libraries that keep to MPI-3. Tensors must lie in host memory.
class MpiWorld {
 public:
  /// Seconds from hearing of a failure to the end of the process, so that the failing rank can print its
  /// error.
  static constexpr double kSecondsToEnd = 1.5;

  /// A rank that does not come, or that stops, ends the others with 76 after the deadline, as everywhere
  /// else. Throws Error(kResources) if MPI cannot be called beside other threads, or if several processes
  /// were started but each is alone in its world. Collective.
  explicit MpiWorld(const MpiOptions& options = {});
  /// Calls MPI_Finalize when all ranks have come here. Does nothing while an exception unwinds.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// All ranks, in the launcher's order: "world".
  Communicator& communicator();
  /// By rank of `communicator()`.
  const std::vector<RankHost>& places() const;
  /// How many ranks run on this rank's node, itself counted.
  int64_t ranks_here() const;
  /// How many of them come before it.
  int64_t local_rank() const;
  /// "Open MPI v4.1.4", or "none" if MPI was not started.
  std::string library() const;

  /// Sets the step that errors and the watchdog name.
  void set_step(int64_t step);
  void set_deadline(double seconds);

  /// Runs `body`, all that a command does on this world. If it throws, announces the failure to all ranks and
  /// throws on, so that the error is printed once. The other ranks end by _exit with its exit code after
  /// kSecondsToEnd, silently and without MPI_Finalize, which would wait for ranks that do not come. If
  /// several ranks fail at about the same time, the lowest one throws and the others end. Throws
  /// Error(kUsage) on all ranks, before `body`, if their MpiOptions::command differ: their collectives would
  /// mix.
  ExitCode run(FunctionRef<ExitCode()> body);

 private:
  void tell_failure(ExitCode code);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
