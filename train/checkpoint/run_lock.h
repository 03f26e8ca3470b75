// RunLock: only one live run owns a directory.
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
  double patience_seconds = 30;  ///< an owner on another machine is gone if its heartbeat stops for this long
  double ending_seconds = 3;     ///< time that an owner on this host gets to end after its launcher has ended
  double answer_seconds = 600;   ///< how long an owner waits for a file system that does not answer

  /// An owner writes nothing if its last heartbeat is older than this: others count from that heartbeat.
  double fence_seconds() const { return patience_seconds - heartbeat_seconds; }
};

/// Who waits while it is not known whether an owner lives: half a minute without a word looks like a hang.
struct RunLockWait {
  std::function<void(const std::string&)> say;  ///< is told once what is waited for; may be empty
  std::function<bool()> stop_requested;         ///< whether to give up; may be empty
};

/// Owns `directory`/LOCK from construction to destruction. The file names host, process, job and directory,
/// and has a number that a thread raises every few seconds, the heartbeat. It is made with O_EXCL, not locked
/// with flock, which Lustre and NFS may not have. Only rank 0 has a RunLock. The lock of a killed run is
/// taken over: at once if its process is known to be gone (same machine), or if it is the lock of this job
/// before a requeue; else after the heartbeat has stopped for `patience_seconds`. A lock that was copied with
/// its directory is taken over at once if it is a hard link, else as if its owner were on another machine. A
/// run whose directory was moved while it lives stays protected.
///
/// The thread of the heartbeat also reads LOCK back, so an owner that was taken over, as after a partition or
/// a SIGSTOP, learns of it within `heartbeat_seconds`. From then on `check_owner` throws, for good. While the
/// heartbeat is late (the file system does not answer, or the process stood still) another start may have
/// taken over, or nobody: the owner must not write until the next heartbeat that gets through has told.
class RunLock {
 public:
  /// May wait for `patience_seconds`. Throws Error(kStorage), with the owner, if a live run owns the
  /// directory, and if the lock cannot be made; Error(kRequeue) if a stop is requested while it waits.
  RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times = {},
          const RunLockWait& wait = {});
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error(kStorage) if another process has taken the directory over, as far as the heartbeat knows:
  /// looks at no file, waits for nothing and costs next to nothing. Once it has thrown, it always throws.
  void check_owner() const;
  /// To be asked before every write. Throws like check_owner(); false if the last heartbeat is older than
  /// fence_seconds(): then the write must wait.
  bool may_write() const;
  /// Checks the owner like check_owner(), and reads LOCK. If the last heartbeat is older than
  /// fence_seconds(), first waits for one that gets through; throws Error(kCommunication) after
  /// RunLockTimes::answer_seconds without one. Time in which this process was stopped does not count. Called
  /// before every commit.
  void check_still_owned() const;
  /// Whether the thread of the heartbeat is in a call of the file system that may never return.
  bool is_stuck() const;
  /// Gives the directory up, because of `reason`, found elsewhere: throws, as check_owner does from now on.
  [[noreturn]] void lose(const std::string& reason) const;
  /// A text for the log about a lock that was taken over; empty if there was none.
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

/// The owner of a run, for a process that looks at it from outside.
struct RunOwner {
  enum class State { kNone, kAlive, kGone };
  State state = State::kNone;  ///< kNone: there is no LOCK, so no run is alive
  std::string who;             ///< "process 4711 on node7 (job 42)"; empty for kNone
  std::string note;            ///< only for kGone: why we believe it, for messages
};

/// Reads `directory`/LOCK and changes nothing. An owner on this host is alive if its process is. On another
/// machine, and in a copied lock, an owner is alive if the file, which each heartbeat changes, is at most
/// RunLockTimes::patience_seconds and another 30 s old: clocks and caches differ. A file time more than 30 s
/// in the future tells nothing. Throws Error(kStorage) if LOCK exists and cannot be read.
RunOwner find_run_owner(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
