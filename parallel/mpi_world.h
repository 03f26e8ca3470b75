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
  /// The command of this process, such as "train". run() refuses ranks with different commands.
  std::string command = {};
  /// The longest time of one wait, which then throws Error(kCommunication), and of one call of MPI; a longer
  /// call ends the process (see end_process). Time in which this process was suspended does not count.
  double deadline_seconds = 600;
  /// The directory of the run, which may not exist yet. Ranks make files near it before MPI starts, so that
  /// an error can name missing ranks (see Arrivals). Empty: no files.
  std::filesystem::path directory = {};
  /// Prints the error and ends the process. Called on a thread of its own if the main thread hangs inside
  /// MPI, if possible on one rank only; the other ranks end silently. Empty: all ranks end silently.
  std::function<void(const Error&)> end_process = {};
  /// The longest MPI message in bytes, at most 2^30; longer messages are cut into pieces.
  int64_t piece_bytes = int64_t{1} << 30;
};

/// Where a rank runs. Ranks of one node share memory.
struct RankHost {
  std::string host;
  int64_t node = 0;  ///< lowest rank on the node, which identifies the node
};

/// The ranks of a launch. Starts the watchdog and MPI, and ends both. At most one per process. Without a
/// launcher, the world is one rank and does not start MPI, which may not work there. Only the main thread may
/// call the members. Split communicators must be destroyed first. Tensors must lie in host memory.
class MpiWorld {
 public:
  /// Seconds from hearing of another rank's failure to the end of this process. The failing rank prints in
  /// this time.
  static constexpr double kSecondsToEnd = 1.5;

  /// Starts MPI with all ranks of the launch. If a rank does not come, the others end with exit code 76 after
  /// the deadline. Throws Error(kResources) if MPI cannot be called beside other threads, or if the launch
  /// has several processes, each alone in its MPI world. Collective.
  explicit MpiWorld(const MpiOptions& options = {});
  /// Calls MPI_Finalize. Does nothing while an exception unwinds.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  /// The communicator "world", in the launcher's order.
  Communicator& communicator();
  /// Host and node, indexed by rank of communicator().
  const std::vector<RankHost>& places() const;
  int64_t ranks_here() const;  ///< the number of ranks on this rank's node
  /// The index of this rank among the ranks on its node.
  int64_t local_rank() const;
  /// Name and version of the MPI library, such as "Open MPI v4.1.4"; "none" if MPI was not started.
  std::string library() const;

  void set_step(int64_t step);  ///< the step that errors name
  /// Adds a stage and its micro-batch to that step.
  void set_micro_batch(int64_t stage, int64_t micro_batch);
  /// Records into `recorder` (borrowed), while it is on, each transfer of the world's communicators: from the
  /// first message to the end of the wait, with the bytes that this rank sends, on tracks of the group.
  /// Also records the waits, as ranges of the main thread. Null ends the recording.
  void record_into(RangeRecorder* recorder);
  /// Replaces MpiOptions::deadline_seconds. While any rank waits for storage, the deadline from the options
  /// still holds if it is longer.
  void set_deadline(double seconds);
  /// Sets whether this rank waits for storage. Errors then say so, and deadlines are longer (set_deadline).
  void set_waits_for_storage(bool waits);

  /// Runs `body`, the whole command, and waits for all ranks. If `body` throws, announces the failure to all
  /// ranks and rethrows the exception. The other ranks end silently after kSecondsToEnd with the exit code of
  /// the error, by _exit, because MPI_Finalize would wait for missing ranks. If several ranks fail at about
  /// the same time, the lowest rethrows and the others end. Throws Error(kUsage) on all ranks before `body`
  /// if the ranks' commands differ.
  ExitCode run(FunctionRef<ExitCode()> body);

 private:
  void tell_failure(ExitCode code);

  struct State;
  std::unique_ptr<State> state_;
};

/// Marks a time in which this rank waits for storage; see MpiWorld::set_waits_for_storage().
class StorageWait {
 public:
  explicit StorageWait(MpiWorld& world) : world_(world) { world_.set_waits_for_storage(true); }
  ~StorageWait() { world_.set_waits_for_storage(false); }
  StorageWait(const StorageWait&) = delete;
  StorageWait& operator=(const StorageWait&) = delete;

 private:
  MpiWorld& world_;
};

}  // namespace ripstop
