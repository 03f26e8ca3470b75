// MpiWorld: the processes that the launcher started together. The only door to MPI.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/communicator.h"

namespace ripstop {

struct MpiOptions {
  /// How long one wait may take before the run ends with Error(kCommunication). Time in which this very
  /// process was stopped does not count.
  double deadline_seconds = 600;
  /// Longest message; MPI-3 counts are `int`.
  int64_t piece_bytes = int64_t{1} << 30;
};

/// Where a rank runs. Ranks of one node share memory.
struct RankHost {
  std::string host;
  int64_t node = 0;  ///< lowest rank of that node
};

/// Starts MPI, if this process was started by a launcher, and the watchdog; ends both. At most one a process.
/// A process that no launcher started is a world of one, and MPI is not touched: it may not work there.
/// The main thread alone calls (MPI_THREAD_FUNNELED). Communicators must be gone before the world.
///
/// Open MPI 4 and 5, MPICH and whatever else keeps to MPI-3. Tensors must lie in host memory.
class MpiWorld {
 public:
  /// From being told of a failure to the end: time for the line that says why to be written.
  static constexpr double kSecondsToEnd = 1.5;

  /// Throws Error(kResources) where MPI cannot be called beside other threads, or where several processes
  /// were started but each is alone in its world.
  explicit MpiWorld(const MpiOptions& options = {});
  /// MPI_Finalize, after all ranks have come here; nothing while an exception unwinds.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// All ranks, in the launcher's order: "world".
  Communicator& communicator();
  /// By rank of `communicator()`.
  const std::vector<RankHost>& places() const;
  /// How many ranks run on this rank's node, itself counted.
  int64_t ranks_here() const;
  /// "Open MPI v4.1.4", or "none" where MPI was not started.
  std::string library() const;

  /// The step that errors and the watchdog name from now on.
  void set_step(int64_t step);
  void set_deadline(double seconds);

  /// Runs `body`, the whole of what a command does on this world. What it throws is told to all ranks, which
  /// end with its exit code through _exit half a second later, without a word and without MPI_Finalize, which
  /// would wait for ranks that do not come; then it is thrown on, to be printed once. Where several ranks
  /// fail at about the same time, the lowest one throws and the others end.
  ExitCode run(FunctionRef<ExitCode()> body);

 private:
  void tell_failure(ExitCode code);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ripstop
