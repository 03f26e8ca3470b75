#include "train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "data/files/directory.h"
#include "data/files/whole_file.h"
#include "data/process/blocked_signals.h"
#include "data/process/process_identity.h"
#include "model/core/error.h"
#include "model/core/number.h"
#include "train/machine/machine.h"

namespace ripstop {
namespace {

constexpr const char* kLockFile = "LOCK";
constexpr int64_t kMostLockBytes = 16384;  // the path alone may have 4096 bytes
using Clock = std::chrono::steady_clock;

/// Reads LOCK; nullopt if LOCK does not exist or disappears during the read.
std::optional<std::string> read_lock(Io& io, const std::filesystem::path& path) {
  try {
    return read_whole_file(io, path, kMostLockBytes);
  } catch (const Error&) {
    // NFS answers ESTALE for an open file that was deleted.
    Io::Status status;
    if (io.status(path, status) != 0 && errno == ENOENT) return std::nullopt;
    throw;
  }
}

/// The lines "key value" of a lock, which identify its owner.
using Owner = ProcessIdentity;

/// The directory's absolute path; "" if unknown, or if it has a line end, which a lock cannot hold.
std::string absolute_path(const std::filesystem::path& directory) {
  std::error_code error;
  const std::string path = std::filesystem::canonical(directory, error).string();
  return path.find('\n') == path.npos ? path : "";
}

/// The directory's inode, which a rename does not change; "" if unknown.
std::string inode(const std::filesystem::path& directory) {
  struct stat facts {};
  return ::stat(directory.c_str(), &facts) == 0 ? std::to_string(facts.st_ino) : "";
}

Owner this_owner(const std::filesystem::path& directory) {
  std::random_device random;
  Owner owner = this_process();
  owner["directory"] = absolute_path(directory);
  owner["inode"] = inode(directory);
  owner["job"] = environment_variable("SLURM_JOB_ID");
  owner["restart"] = environment_variable("SLURM_RESTART_COUNT");
  owner["nonce"] = fmt::format("{:08x}{:08x}", random(), random());
  return owner;
}

std::string text_of(const Owner& owner, uint64_t beat) {
  return to_text(owner) + fmt::format("~beat {:020}\n", beat);
}

std::string describe_owner(const Owner& owner) {
  const std::string job = fact(owner, "job");
  return describe(owner) + (job.empty() ? "" : fmt::format(" (job {})", job));
}

bool agree(const Owner& a, const Owner& b, const char* key) {
  return !fact(a, key).empty() && fact(a, key) == fact(b, key);
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Whether the lock was copied here with a run's directory: it names a directory with another path and
/// another inode. (A moved directory, or one seen from another host, differs in the path alone.)
bool is_copy(const Owner& owner, const Owner& self) {
  const auto is_other = [&](const char* key) {
    return !fact(owner, key).empty() && !agree(owner, self, key);
  };
  return is_other("directory") && is_other("inode");
}

/// Why `text`, read from LOCK, is not the lock of `self`; "" if it is.
std::string loss(const std::optional<std::string>& text, const Owner& self) {
  if (!text) return "its LOCK is gone, as if the directory was moved or removed, or taken over and done";
  const Owner owner = parse_process(*text);
  return agree(owner, self, "nonce") ? "" : "this run was taken over by " + describe_owner(owner);
}

int64_t restarts(const Owner& owner) {
  return parse_whole_number(fact(owner, "restart")).value_or(0);
}

/// A clock, in seconds, that also runs while the machine sleeps, as the clocks of other machines do.
double boot_seconds() {
  return clock_seconds(CLOCK_BOOTTIME);
}

}  // namespace

/// Raises the number in LOCK, on a thread, and checks that the file is still this owner's. An object lives as
/// long as its thread: for ever if the thread is in a call to a file system that does not answer.
class RunLock::Heartbeat {
 public:
  Heartbeat(Io& io, std::filesystem::path path, const RunLockTimes& times, Owner self, Descriptor file)
      : io_(io),
        path_(std::move(path)),
        times_(times),
        self_(std::move(self)),
        file_(std::move(file)),
        syncs_(may_be_shared(path_)),
        answered_at_(boot_seconds()),
        renewed_at_(answered_at_) {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { run(); });
  }
  ~Heartbeat() {
    request_end();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  /// Asks the thread to end. Waits until the thread has left its file system call, but only until the last
  /// heartbeat is fence_seconds() old. Returns false if the thread is still in the call.
  bool request_end() {
    std::unique_lock guard(mutex_);
    stops_ = true;
    wake_.notify_all();
    const double left = times_.fence_seconds() - (boot_seconds() - answered_at_);
    return changed_.wait_for(guard, std::chrono::duration<double>(std::max(left, 0.0)),
                             [&] { return !in_call_; });
  }
  bool is_stuck() {
    const std::lock_guard guard(mutex_);
    return in_call_ && boot_seconds() - answered_at_ > times_.fence_seconds();
  }
  /// Why this owner has lost the directory; "" if it has not.
  std::string reason() {
    const std::lock_guard guard(mutex_);
    return lost_;
  }
  void lose(const std::string& reason) {
    const std::lock_guard guard(mutex_);
    if (lost_.empty()) lost_ = reason;
  }
  /// Whether the last heartbeat is recent enough to write (fence_seconds()). If not, asks for one now.
  bool is_in_time() {
    const std::lock_guard guard(mutex_);
    if (is_late()) hurry();
    return !is_late();
  }
  /// Waits until a heartbeat that began after the call has ended and is_late() is false, or until lost_ is
  /// set. Returns false after answer_seconds.
  bool await() {
    std::unique_lock guard(mutex_);
    const double since = boot_seconds();
    hurry();
    // Waits in pieces, so that a stop of this process counts as one piece at most.
    constexpr double kPiece = 0.5;
    for (double waited = 0; waited < times_.answer_seconds; waited += kPiece)
      if (changed_.wait_for(guard, std::chrono::duration<double>(kPiece),
                            [&] { return !lost_.empty() || (answered_at_ >= since && !is_late()); }))
        return true;
    return false;
  }

 private:
  /// Asks for a heartbeat now, because after a SIGCONT or a machine's sleep the thread may wait for seconds.
  void hurry() {
    hurries_ = true;
    wake_.notify_all();
  }
  bool is_late() const { return boot_seconds() - renewed_at_ > times_.fence_seconds(); }

  void run() {
    const auto interval = std::chrono::duration<double>(times_.heartbeat_seconds);
    std::unique_lock guard(mutex_);
    for (uint64_t count = 1;; ++count) {
      wake_.wait_for(guard, interval, [&] { return stops_ || hurries_; });
      if (stops_) return;
      hurries_ = false;
      in_call_ = true;
      guard.unlock();
      // The heartbeat's time is the start of the write, because others may see the new number from then on.
      const double began = boot_seconds();
      std::string reason;
      const bool renewed = write(count) && is_own(reason);
      guard.lock();
      in_call_ = false;
      answered_at_ = began;
      if (renewed) renewed_at_ = began;
      if (lost_.empty()) lost_ = reason;
      changed_.notify_all();
    }
  }

  bool write(uint64_t count) {
    const std::string text = text_of(self_, count);
    return io_.pwrite(file_.value(), text.data(), text.size(), 0) == std::ssize(text) && !stops_ &&
           (!syncs_ || io_.fsync(file_.value()) == 0);  // other machines may not see an unsynced write
  }

  /// Whether LOCK is still this owner's file. Sets `reason` if LOCK is gone or is another owner's.
  bool is_own(std::string& reason) {
    // LOCK may be absent for a moment: another start moves it aside, sees the new number, and puts it back.
    constexpr int kLooks = 10;
    for (int look = 1; !stops_; ++look) {
      try {
        const std::optional<std::string> text = read_lock(io_, path_);
        if (text || look == kLooks) {
          reason = loss(text, self_);
          return reason.empty();
        }
      } catch (const Error&) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }

  Io& io_;
  const std::filesystem::path path_;
  const RunLockTimes times_;
  const Owner self_;
  const Descriptor file_;
  const bool syncs_;
  std::atomic<bool> stops_ = false;  ///< the thread must end; changed under mutex_ only
  std::mutex mutex_;                 ///< guards the members below
  std::condition_variable wake_;     ///< wakes the thread
  std::condition_variable changed_;  ///< wakes callers that wait for the thread
  bool hurries_ = false;             ///< the next heartbeat is due now
  bool in_call_ = false;             ///< the thread is in file system calls
  double answered_at_;               ///< start of the last heartbeat whose calls returned
  double renewed_at_;                ///< start of the last heartbeat that was written and read back
  std::string lost_;                 ///< the return value of reason()
  std::thread thread_;
};

RunLock::RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times,
                 const RunLockWait& wait)
    : io_(io), path_(directory / kLockFile), times_(times), self_(this_owner(directory)) {
  constexpr int kAttempts = 3;  // another start may replace a stale lock first
  Descriptor file = try_create();
  for (int attempt = 0; file.value() < 0; ++attempt) {
    const std::optional<std::string> text = read_lock(io_, path_);
    if (attempt >= kAttempts) refuse(text.value_or(""));
    if (text) {
      wait_until_gone(*text, wait);
      take_away(*text);
      const Owner owner = parse_process(*text);
      takeover_ = is_copy(owner, self_)
                      ? fmt::format("this directory is a copy of {}, which is or was a run of {}",
                                    owner.at("directory"), describe_owner(owner))
                      : fmt::format("took over from {}, which ended without giving the run back",
                                    describe_owner(owner));
    }
    file = try_create();
  }
  heartbeat_ = std::make_unique<Heartbeat>(io_, path_, times_, self_, std::move(file));
}

RunLock::~RunLock() {
  if (!heartbeat_->request_end()) {
    // Leaves thread and file to the end of the process, because joining or closing might never return.
    static_cast<void>(heartbeat_.release());
    return;
  }
  const bool lost = !heartbeat_->reason().empty();
  heartbeat_.reset();  // closes the file before unlink: NFS keeps deleted files that are open
  try {
    if (!lost && loss(read_lock(io_, path_), self_).empty()) io_.unlink(path_);
  } catch (const Error&) {
    // A lock that cannot be read stays for the next start to take.
  }
}

/// Makes LOCK. Returns a descriptor without a file if LOCK exists.
Descriptor RunLock::try_create() {
  Descriptor file(io_, io_.open(path_, O_CREAT | O_EXCL | O_RDWR));
  if (file.value() < 0) {
    if (errno == EEXIST) return file;
    fail_storage(path_, "create", errno);
  }
  const std::string text = text_of(self_, 0);
  const ssize_t done = io_.pwrite(file.value(), text.data(), text.size(), 0);
  if (done == std::ssize(text) && io_.fsync(file.value()) == 0) return file;
  // A short write means a full disk, but sets no errno.
  const int error = done < 0 || done == std::ssize(text) ? errno : ENOSPC;
  io_.unlink(path_);
  fail_storage(path_, "write", error);
}

/// Returns when the owner that `text` names counts as gone. Throws Error(kStorage) if the owner is alive,
/// Error(kRequeue) if a stop is requested.
void RunLock::wait_until_gone(const std::string& text, const RunLockWait& wait) const {
  const Owner owner = parse_process(text);
  const bool copied = is_copy(owner, self_);
  if (copied && has_hard_links(path_)) return;
  const ProcessState state = state_of(owner);
  if (state == ProcessState::kGone) return;
  // A copied lock names the owner of the original directory; whether that owner runs does not matter. But
  // some file systems change inodes, so is_copy() may be wrong: the loop below then sees a new heartbeat.
  if (state == ProcessState::kRuns && !copied) {
    const Clock::time_point end = after(times_.ending_seconds);
    while (state_of(owner) == ProcessState::kRuns) {
      if (Clock::now() > end) refuse(text);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return;
  }
  if (agree(owner, self_, "job") && restarts(owner) < restarts(self_)) return;
  const Clock::time_point end = after(times_.patience_seconds);
  const std::string waits =
      fmt::format("waiting up to {:.0f} s for {}, which owned {} and may live", times_.patience_seconds,
                  describe_owner(owner), path_.parent_path().string());
  if (wait.say) wait.say(waits);
  while (Clock::now() < end) {
    if (wait.stop_requested && wait.stop_requested())
      throw Error(ExitCode::kRequeue, "stopped on a signal while " + waits,
                  "nothing was changed: run the same command again");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::optional<std::string> now = read_lock(io_, path_);
    if (!now) return;
    if (*now != text) refuse(*now);
  }
}

void RunLock::refuse(const std::string& text) const {
  throw Error(ExitCode::kStorage,
              fmt::format("{}: this run is owned by {}, which is alive", path_.parent_path().string(),
                          describe_owner(parse_process(text))),
              "wait until it ends, or give this run another directory");
}

/// Removes the lock that has the text `text`. Another start may replace that lock just before the rename, so
/// the text is compared after the rename, and a foreign lock is put back.
void RunLock::take_away(const std::string& text) {
  std::filesystem::path aside = path_;
  aside += ".stale." + self_.at("nonce");
  if (io_.rename(path_, aside) != 0) {
    if (errno == ENOENT) return;
    fail_storage(path_, "rename", errno);
  }
  const std::string found = read_whole_file(io_, aside, kMostLockBytes);
  if (found != text) {
    io_.rename(aside, path_);
    refuse(found);
  }
  io_.unlink(aside);
}

void RunLock::lose(const std::string& reason) const {
  heartbeat_->lose(reason);
  throw Error(
      ExitCode::kStorage, fmt::format("{}: {}", path_.parent_path().string(), heartbeat_->reason()),
      "this process writes nothing any more; a process that took the run over goes on from the newest "
      "checkpoint, as does a new start");
}

void RunLock::check_owner() const {
  if (const std::string reason = heartbeat_->reason(); !reason.empty()) lose(reason);
}

bool RunLock::may_write() const {
  check_owner();
  return heartbeat_->is_in_time();
}

bool RunLock::is_stuck() const {
  return heartbeat_->is_stuck();
}

void RunLock::check_still_owned() const {
  if (!heartbeat_->await())
    throw Error(
        ExitCode::kCommunication,
        fmt::format("{} does not answer: this process waited {:.0f} s until its LOCK could be written",
                    path_.parent_path().string(), times_.answer_seconds),
        "see the mounts of this node and the file server; run the same command again to go on from "
        "the last checkpoint");
  check_owner();
  if (const std::string reason = loss(read_lock(io_, path_), self_); !reason.empty()) lose(reason);
}

RunOwner find_run_owner(Io& io, const std::filesystem::path& directory) {
  constexpr double kSlackSeconds = 30;
  const std::filesystem::path path = directory / kLockFile;
  const std::optional<std::string> text = read_lock(io, path);
  if (!text) return {};
  const Owner owner = parse_process(*text);
  const std::string who = describe_owner(owner);
  RunOwner found{RunOwner::State::kGone, who, who + " ended without releasing the run"};
  const bool copied = is_copy(owner, this_owner(directory));
  const ProcessState state = state_of(owner);
  if (state == ProcessState::kGone) return found;
  if (state == ProcessState::kRuns && !copied) return {RunOwner::State::kAlive, who, ""};
  if (copied) found.note = fmt::format("a copy of {}, whose owner is {}", owner.at("directory"), who);
  if (copied && has_hard_links(path)) return found;
  const std::optional<double> age = age_of(path);
  if (!age) return found;
  if (*age < -kSlackSeconds)
    found.note = fmt::format("LOCK has a time in the future: whether {} lives cannot be told", who);
  else if (*age <= RunLockTimes{}.patience_seconds + kSlackSeconds)
    return {RunOwner::State::kAlive, who, ""};
  return found;
}

}  // namespace ripstop
