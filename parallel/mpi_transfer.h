// Transfer: the messages of one collective over MPI. Only files named mpi_* include it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "parallel/mpi_progress.h"
#include "parallel/mpi_world.h"
#include "parallel/watchdog.h"

namespace ripstop::mpi {

/// Throws Error(kCommunication) with MPI's text unless `result` is MPI_SUCCESS.
void check_mpi(int result, const char* call);

/// The state that all communicators of a world share.
struct World {
  MpiOptions options;
  Watchdog watchdog{MpiWorld::kSecondsToEnd};
  std::vector<RankHost> places;         ///< by rank of MPI_COMM_WORLD
  std::atomic<bool> connected = false;  ///< the watchdogs know each other, and `places` is complete
  ProgressThread progress;
};

/// Guards a call of MPI while this object lives: the watchdog ends the process if the call takes longer than
/// the world's deadline and `more_seconds`.
class GuardedCall {
 public:
  GuardedCall(World& world, const std::string& call, double more_seconds = 0) : watchdog_(world.watchdog) {
    watchdog_.guard(call, world.options.deadline_seconds + more_seconds);
  }
  ~GuardedCall() { watchdog_.unguard(); }
  GuardedCall(const GuardedCall&) = delete;
  GuardedCall& operator=(const GuardedCall&) = delete;

 private:
  Watchdog& watchdog_;
};

/// Describes all ranks of a connected world that do not answer, by host, and then the state of each rank in
/// `waited_for` (ranks of the world, in rising order) that answers.
std::string describe_missing(World& world, const std::vector<int64_t>& waited_for);

/// The state of a communicator.
struct Group {
  World* world = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  std::string name;
  int64_t rank = 0, size = 1;
  std::vector<int64_t> world_rank;  ///< the rank in MPI_COMM_WORLD of each rank of the group
  int64_t bytes_sent = 0;
  double seconds_waited = 0;
  int sequence = 0;  ///< the number of the next transfer
};

/// Waits until `done()`. Past the deadline throws Error(kCommunication) that names `operation`, the group,
/// the step, and the states of the ranks that `missing()` returns (ranks of the group), asked of their
/// watchdogs.
void wait_until(Group& group, const char* operation, FunctionRef<bool()> done,
                FunctionRef<std::set<int64_t>()> missing);

/// The messages of one collective, each cut into pieces that MPI can count. All ranks of the group make their
/// transfers in the same order; any number may be under way. The data must live until wait() has returned.
class Transfer {
 public:
  Transfer(Group& group, const char* operation);
  Transfer(Transfer&&) noexcept = default;
  ~Transfer();

  void send(const void* data, int64_t bytes, int64_t to);
  void receive(void* data, int64_t bytes, int64_t from);

  /// Whether all messages are complete. Lets MPI make progress.
  bool test();
  /// Waits until all messages are complete. Past the deadline throws Error(kCommunication) that names the
  /// ranks that did not come.
  void wait();

 private:
  template <class Post>
  void post_pieces(int64_t bytes, int64_t peer, Post post);
  std::set<int64_t> missing();

  Group* group_;
  const char* operation_;
  int tag_;
  std::unique_ptr<Messages> messages_;  ///< on the heap, because the progress thread points at it
};

/// A communicator that owns `comm`.
std::unique_ptr<Communicator> make_mpi_communicator(World& world, MPI_Comm comm, const std::string& name);

}  // namespace ripstop::mpi
