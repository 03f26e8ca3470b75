// RunLock: one live run on a directory.
#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "data/io.h"

namespace ripstop {

struct RunLockTimes {
  double heartbeat_seconds = 5;
  double patience_seconds = 30;  ///< an owner elsewhere whose heartbeat stands still for so long is gone
  double ending_seconds = 3;     ///< what an owner here may still take to end when its launcher has
};

/// Owns `directory`/LOCK from construction to destruction: a file made with O_EXCL that names host, process
/// and job, with a number that a thread raises every few seconds (no flock: Lustre and NFS may not have it).
/// Rank 0 alone holds it. A lock left by a killed run is taken over: at once where its process is known to be
/// gone (same machine) or it was our own job before a requeue, else once its heartbeat has stood still for
/// `patience_seconds`.
class RunLock {
 public:
  /// Throws Error(kStorage) where a live run owns the directory, naming it, or where the lock cannot be made.
  RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times = {});
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error(kStorage) where somebody else has taken the directory over: asked before every commit.
  void check_still_owned() const;
  /// What was found at the start and taken over: a text for the log; empty where there was nothing.
  const std::string& takeover() const;

 private:
  class Heart;
  std::unique_ptr<Heart> heart_;
};

/// What LOCK tells somebody who looks at a run from outside.
struct RunOwner {
  enum class State { kNone, kAlive, kGone };
  State state = State::kNone;  ///< kNone: there is no LOCK, so nothing runs
  std::string who;             ///< "process 4711 on node7 (job 42)"; empty for kNone
};

/// Looks at `directory`/LOCK and changes nothing. An owner on this machine lives while its process does, one
/// elsewhere while its heartbeat, which is the file's time of change, is not older than
/// RunLockTimes::patience_seconds and half a minute for clocks and caches that differ. Throws Error(kStorage)
/// where a LOCK cannot be read.
RunOwner find_run_owner(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
