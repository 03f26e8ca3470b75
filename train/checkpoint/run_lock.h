// RunLock: only one live run owns a directory.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "data/file.h"
#include "data/io.h"

namespace ripstop {

struct RunLockTimes {
  double heartbeat_seconds = 5;
  double patience_seconds = 30;  ///< an owner on another machine is gone if its heartbeat stops for this long
  double ending_seconds = 3;     ///< time that an owner on this host gets to end after its launcher has ended
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
/// its directory names another one: it is taken over at once if it is a hard link, else as if its owner were
/// on another machine. A run whose directory was moved while it lives stays protected.
class RunLock {
 public:
  /// May wait for `patience_seconds`. Throws Error(kStorage), with the owner, if a live run owns the
  /// directory, and if the lock cannot be made; Error(kRequeue) if a stop is requested while it waits.
  RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times = {},
          const RunLockWait& wait = {});
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  /// Throws Error(kStorage) if another process has taken the directory over. Called before every commit.
  void check_still_owned() const;
  /// A text for the log about a lock that was taken over; empty if there was none.
  const std::string& takeover() const { return takeover_; }

 private:
  /// The lines "key value" of a lock.
  using Owner = std::map<std::string, std::string>;

  bool try_create();
  std::optional<std::string> read() const;
  void wait_until_gone(const std::string& text, const RunLockWait& wait) const;
  [[noreturn]] void refuse(const std::string& text) const;
  void take_away(const std::string& text);
  void start_heartbeat();
  void beat();

  Io& io_;
  const std::filesystem::path path_;
  const RunLockTimes times_;
  const Owner self_;
  std::string takeover_;
  Descriptor file_;
  std::mutex mutex_;  ///< guards stops_
  std::condition_variable stop_;
  bool stops_ = false;
  std::thread heartbeat_;
};

/// The owner of a run, for a process that looks at it from outside.
struct RunOwner {
  enum class State { kNone, kAlive, kGone };
  State state = State::kNone;  ///< kNone: there is no LOCK, so no run is alive
  std::string who;             ///< "process 4711 on node7 (job 42)"; empty for kNone
  std::string note;            ///< of kGone, for people: how that is known
};

/// Reads `directory`/LOCK and changes nothing. An owner on this host is alive if its process is. An owner
/// on another machine is alive if the file, which each heartbeat changes, is at most
/// RunLockTimes::patience_seconds and another 30 s old: clocks and caches differ. So is that of a copied
/// lock. A file time more than 30 s in the future tells nothing. Throws Error(kStorage) if LOCK exists and
/// cannot be read.
RunOwner find_run_owner(Io& io, const std::filesystem::path& directory);

}  // namespace ripstop
