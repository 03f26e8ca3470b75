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
  double heartbeat_seconds = 5;
  double patience_seconds = 30;  ///< time without a heartbeat after which an owner elsewhere counts as gone
  double ending_seconds = 3;     ///< the longest wait for a running owner on this host to end
  double answer_seconds = 600;   ///< the longest wait of an owner for its file system

  /// Age of the last heartbeat at which an owner must stop writing; other starts take over only later.
  double fence_seconds() const { return patience_seconds - heartbeat_seconds; }
};

/// Callbacks of a start that waits to learn whether the owner is alive. Each may be empty.
struct RunLockWait {
  std::function<void(const std::string&)> say;  ///< called with the reason before a wait of patience_seconds
  std::function<bool()> stop_requested;         ///< ends the wait if true
};

/// Owns `directory`/LOCK from construction to destruction, on rank 0 only. LOCK names host, process, job and
/// directory, and has a number that a thread raises every few seconds, the heartbeat. LOCK is made with
/// O_EXCL, because Lustre and NFS may lack flock.
///
/// A new start takes the lock of a killed run: at once if the old process is known to be gone (same machine),
/// or if this job made the lock before a requeue; else after `patience_seconds` without a heartbeat. A lock
/// that was copied with its directory is also taken at once if it is a hard link; else an owner that runs
/// here counts like one on another machine.
///
/// The heartbeat's thread also reads LOCK back, so an owner that was taken over, for example after a SIGSTOP,
/// learns of it at its next heartbeat; from then on check_owner() throws. While the heartbeat is late,
/// another start may have taken over, so the owner must not write.
class RunLock {
 public:
  /// Takes the lock; may wait for `patience_seconds`. Throws Error(kStorage) if a live run owns the directory
  /// (the message names it), or if LOCK cannot be read or made; Error(kRequeue) if a stop is requested during
  /// the wait.
  RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times = {},
          const RunLockWait& wait = {});
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error(kStorage) once a heartbeat has found that LOCK is gone or of another process, and after
  /// lose(). Reads no file and does not wait.
  void check_owner() const;
  /// Call it before every write. Throws the error of check_owner(). Returns false if the write must wait,
  /// because the last heartbeat is older than fence_seconds().
  bool may_write() const;
  /// Call it before every commit. Waits for a heartbeat that begins after the call; throws
  /// Error(kCommunication) after RunLockTimes::answer_seconds without one, not counting time in which this
  /// process was stopped. Then reads LOCK, and throws Error(kStorage) if it is gone or of another process.
  void check_still_owned() const;
  /// Whether the heartbeat's thread has been in file system calls so long that they may never return.
  bool is_stuck() const;
  /// Gives up the directory for `reason`: throws the Error(kStorage) that check_owner() throws from now on.
  [[noreturn]] void lose(const std::string& reason) const;
  /// A text for the log about the lock that was taken over; empty if no lock was taken over.
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

struct RunOwner {
  /// kNone: there is no LOCK. kGone: there is a LOCK, whose owner counts as gone.
  enum class State { kNone, kAlive, kGone };
  State state = State::kNone;
  std::string who;   ///< "process 4711 on node7 (job 42)"; empty for kNone
  std::string note;  ///< only for kGone: why the owner counts as gone
};

/// Finds the owner from `directory`/LOCK; changes nothing. An owner that is known to have ended is gone; one
/// that runs here is alive, unless the lock was copied; the owner of a copied lock that is a hard link is
/// gone. Any other is alive if LOCK is at most RunLockTimes::patience_seconds + 30 s old (30 s for
/// differences of clocks and caches) and its time is not more than 30 s in the future. Throws Error(kStorage)
/// if LOCK exists and cannot be read.
RunOwner find_run_owner(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
