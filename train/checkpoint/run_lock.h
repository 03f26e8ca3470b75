// RunLock: at most one live run owns a directory.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/files/file.h"
#include "data/files/io.h"
#include "data/process/process_identity.h"

namespace ripstop {

struct RunLockTimes {
  double heartbeat_seconds = 5;  ///< interval between two heartbeats
  double patience_seconds = 30;  ///< an owner elsewhere is gone after this time without a heartbeat
  double ending_seconds = 3;     ///< the longest wait for the end of a running owner on this host
  double answer_seconds = 600;   ///< the longest wait of an owner for a file system that does not answer

  /// The age of the last heartbeat at which an owner must stop writing. Another start takes over only later.
  double fence_seconds() const { return patience_seconds - heartbeat_seconds; }
};

/// Callbacks of a start that waits to learn whether an owner lives.
struct RunLockWait {
  std::function<void(const std::string&)> say;  ///< called once with the reason of the wait; may be empty
  std::function<bool()> stop_requested;  ///< whether a stop was requested, which ends the wait; may be empty
};

/// Owns `directory`/LOCK from construction to destruction, on rank 0 only. The file names host, process, job
/// and directory, and has a number that a thread raises every few seconds, the heartbeat. It is made with
/// O_EXCL, because Lustre and NFS may lack flock.
///
/// The lock of a killed run is taken over: at once if its process is known to be gone (same machine), or if
/// it is this job's lock from before a requeue; else after the heartbeat has stopped for `patience_seconds`.
/// A lock that was copied with its directory is taken over at once if it is a hard link, else as if its owner
/// were on another machine. A live run stays protected when its directory is moved.
///
/// The heartbeat's thread also reads LOCK back, so an owner that was taken over, for example after a network
/// partition or a SIGSTOP, learns of it within `heartbeat_seconds`; from then on check_owner() throws. While
/// the heartbeat is late (the file system does not answer, or the process was stopped), another start may
/// have taken over: the owner must not write until a heartbeat gets through.
class RunLock {
 public:
  /// Takes the lock; may wait for `patience_seconds`. Throws Error(kStorage) if a live run owns the directory
  /// (the error names that run) or if the lock cannot be made; Error(kRequeue) if a stop is requested during
  /// the wait.
  RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times = {},
          const RunLockWait& wait = {});
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error(kStorage) if the heartbeat has found that another process took the directory over; then
  /// also in every later call. Reads no file and does not wait.
  void check_owner() const;
  /// Call it before every write. Throws as check_owner(). Returns false if the last heartbeat is older than
  /// fence_seconds(); then the write must wait.
  bool may_write() const;
  /// Call it before every commit. Reads LOCK, and throws Error(kStorage) if another process has taken the
  /// directory over. If the last heartbeat is older than fence_seconds(), first waits for a new one; throws
  /// Error(kCommunication) if none comes within RunLockTimes::answer_seconds. Time in which this process was
  /// stopped does not count.
  void check_still_owned() const;
  /// Whether the heartbeat's thread is in a file system call that may never return.
  bool is_stuck() const;
  /// Gives up the directory for a `reason` that the caller has found. Throws the Error(kStorage) that
  /// check_owner() throws from now on.
  [[noreturn]] void lose(const std::string& reason) const;
  /// A text for the log about the lock that was taken over; empty if there was none.
  const std::string& takeover() const { return takeover_; }

 private:
  class Heartbeat;

  Descriptor try_create();
  void wait_until_gone(const std::string& text, const RunLockWait& wait) const;
  [[noreturn]] void refuse(const std::string& text) const;
  void take_away(const std::string& text);

  Io& io_;
  const std::filesystem::path path_;
  const RunLockTimes times_;
  const ProcessIdentity self_;
  std::string takeover_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

/// The owner of a run, as seen by another process.
struct RunOwner {
  /// kNone: there is no LOCK, so no run is alive. kGone: there is a LOCK, whose owner counts as gone.
  enum class State { kNone, kAlive, kGone };
  State state = State::kNone;
  std::string who;   ///< "process 4711 on node7 (job 42)"; empty for kNone
  std::string note;  ///< only for kGone: the reason why the owner counts as gone, for messages
};

/// Finds the owner from `directory`/LOCK; changes nothing. An owner on this host is alive if its process
/// runs. An owner on another machine, and the owner of a copied lock, is alive if the age of LOCK is at most
/// RunLockTimes::patience_seconds + 30 s (for differences of clocks and caches). If the time of LOCK is more
/// than 30 s in the future, the state is kGone with a note that nothing is known. Throws Error(kStorage) if
/// LOCK exists and cannot be read.
RunOwner find_run_owner(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
