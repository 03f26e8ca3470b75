#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/core/function_ref.h"
#include "model/device/range_recorder.h"
#include "parallel/mpi_progress.h"
#include "parallel/mpi_world.h"
#include "parallel/watchdog.h"

namespace ripstop::mpi {

void check_mpi(int result, const char* call);

/// State that all communicators of a world share.
struct World {
  MpiOptions options;
  /// The deadline at the start of the world, which still holds while a rank waits for storage.
  double storage_seconds = 0;
  Watchdog watchdog{MpiWorld::kSecondsToEnd};
  std::vector<RankHost> places;  ///< indexed by rank of MPI_COMM_WORLD
  /// Whether this rank's watchdog knows all addresses, and `places` is complete.
  std::atomic<bool> connected = false;
  ProgressThread progress;
  RangeRecorder* recorder = nullptr;  ///< records transfers and waits if it is on; may be null
};

/// Guards a call of MPI: if it takes longer than the world's deadline plus `more_seconds`, the watchdog ends
/// the process.
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

/// Describes the silent ranks of a connected world, by host, then the states of up to four ranks that answer:
/// ranks inside no operation first, then ranks in `waited_for` (ranks of the world). If `waited_for` is
/// empty, describes only silent ranks.
std::string describe_missing(World& world, const std::vector<int64_t>& waited_for);

struct Group {
  World* world = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;
  std::string name;
  int64_t rank = 0, size = 1;
  std::vector<int64_t> world_rank;  ///< MPI_COMM_WORLD rank of each rank of the group
  int64_t bytes_sent = 0;
  double seconds_waited = 0;
  int sequence = 0;  ///< number of the next transfer, used as its tag
};

/// Waits until done() returns true. If the deadline passes, throws Error(kCommunication), which names
/// `operation`, the group and the step, and describes the group's missing() ranks by what their watchdogs
/// answer.
void wait_until(Group& group, const char* operation, FunctionRef<bool()> done,
                FunctionRef<std::set<int64_t>()> missing);

/// The tag of start_send() and start_receive(): only two ranks call these, and Group::sequence must stay
/// equal on all ranks. Every MPI allows tags up to 32767.
inline constexpr int kMessageTag = 32767;

/// The messages of one collective, each cut into pieces whose sizes MPI can count. All ranks of the group
/// must make their transfers in the same order, except transfers with kMessageTag: MPI matches their messages
/// in the order of the sends and receives. The data must stay alive until wait() has returned.
class Transfer {
 public:
  Transfer(Group& group, const char* operation);
  Transfer(Group& group, const char* operation, int tag);
  Transfer(Transfer&&) noexcept = default;
  ~Transfer();

  void send(const void* data, int64_t bytes, int64_t to);
  void receive(void* data, int64_t bytes, int64_t from);

  /// Lets MPI make progress. Returns whether all messages are complete.
  bool test();
  /// Waits for all messages. At the deadline throws Error(kCommunication), which names the missing ranks.
  void wait();

 private:
  template <class Post>
  void post_pieces(int64_t bytes, int64_t peer, Post post);
  void end_range();
  std::set<int64_t> missing();

  Group* group_;
  const char* operation_;
  int tag_;
  RangeRecorder* recorder_ = nullptr;  ///< set while the transfer is recorded
  size_t track_ = 0;
  int64_t sent_bytes_ = 0;
  std::unique_ptr<Messages> messages_;  ///< on the heap, because the progress thread points to it
};

/// Makes the communicator of the ranks of `comm`, and owns `comm`.
std::unique_ptr<Communicator> make_mpi_communicator(World& world, MPI_Comm comm, const std::string& name);

}  // namespace ripstop::mpi
