#include "train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <random>

#include "data/process_identity.h"
#include "data/whole_file.h"
#include "model/core/error.h"
#include "model/core/number.h"

namespace ripstop {
namespace {

constexpr const char* kLockFile = "LOCK";
constexpr int64_t kMostLockBytes = 16384;  // a path alone may have 4096
using Clock = std::chrono::steady_clock;

/// Reads LOCK; nullopt if it does not exist, or if its owner deletes it meanwhile.
std::optional<std::string> read_lock(Io& io, const std::filesystem::path& path) {
  try {
    return read_whole_file(io, path, kMostLockBytes);
  } catch (const Error&) {
    // Ask again instead of looking at the error: NFS answers ESTALE for an open file that was deleted.
    Io::Status status;
    if (io.status(path, status) != 0 && errno == ENOENT) return std::nullopt;
    throw;
  }
}

/// The lines "key value" of a lock: who made it.
using Owner = ProcessIdentity;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The directory's absolute path; "" if it has a line end, which a lock cannot hold.
std::string absolute_path(const std::filesystem::path& directory) {
  std::error_code error;
  const std::string path = std::filesystem::canonical(directory, error).string();
  return path.find('\n') == path.npos ? path : "";
}

/// The directory's inode: renaming it changes its path but not this. "" if the system does not tell.
std::string inode(const std::filesystem::path& directory) {
  struct stat facts {};
  return ::stat(directory.c_str(), &facts) == 0 ? std::to_string(facts.st_ino) : "";
}

/// This process as the owner of `directory`.
Owner this_owner(const std::filesystem::path& directory) {
  std::random_device random;
  Owner owner = this_process();
  owner["directory"] = absolute_path(directory);
  owner["inode"] = inode(directory);
  owner["job"] = environment("SLURM_JOB_ID");
  owner["restart"] = environment("SLURM_RESTART_COUNT");
  owner["nonce"] = fmt::format("{:08x}{:08x}", random(), random());
  return owner;
}

std::string text_of(const Owner& owner, uint64_t beat) {
  return to_text(owner) + fmt::format("~beat {:020}\n", beat);
}

std::string describe_owner(const Owner& owner) {
  const auto job = owner.find("job");
  const bool has_job = job != owner.end() && !job->second.empty();
  return describe(owner) + (has_job ? fmt::format(" (job {})", job->second) : "");
}

/// Whether both have all `keys`, with equal values that are not empty.
bool agree(const Owner& a, const Owner& b, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto x = a.find(key), y = b.find(key);
    if (x == a.end() || y == b.end() || x->second.empty() || x->second != y->second) return false;
  }
  return true;
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Whether the lock was copied here together with a run's directory: it names another directory, by path and
/// by inode. (A directory that was moved keeps its inode, and on another host, where it may have another
/// path, too.)
bool is_copy(const Owner& owner, const Owner& self) {
  const auto path = owner.find("directory"), inode = owner.find("inode");
  if (path == owner.end() || path->second.empty() || inode == owner.end() || inode->second.empty())
    return false;  // older versions did not name it
  return !agree(owner, self, {"directory"}) && !agree(owner, self, {"inode"});
}

/// Whether the lock is one file with another run's, as after `cp -al`: each heartbeat of its owner shows.
bool has_hard_links(const std::filesystem::path& path) {
  std::error_code error;
  const auto count = std::filesystem::hard_link_count(path, error);
  return !error && count > 1;
}

/// How long ago the file was changed, in seconds; negative if its time is in the future.
std::optional<double> age_of(const std::filesystem::path& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) return std::nullopt;
  return std::chrono::duration<double>(std::filesystem::file_time_type::clock::now() - time).count();
}

int64_t restarts(const Owner& owner) {
  const auto found = owner.find("restart");
  return found == owner.end() ? 0 : parse_whole_number(found->second).value_or(0);
}

}  // namespace

RunLock::RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times,
                 const RunLockWait& wait)
    : io_(io), path_(directory / kLockFile), times_(times), self_(this_owner(directory)) {
  constexpr int kAttempts = 3;  // another start may win the race for a stale lock
  for (int attempt = 0; !try_create(); ++attempt) {
    const std::optional<std::string> text = read();
    if (attempt >= kAttempts) refuse(text.value_or(""));
    if (!text) continue;
    wait_until_gone(*text, wait);
    take_away(*text);
    const Owner owner = parse_process(*text);
    takeover_ = is_copy(owner, self_)
                    ? fmt::format("this directory is a copy of {}, which is or was a run of {}",
                                  owner.at("directory"), describe_owner(owner))
                    : fmt::format("took over from {}, which ended without giving the run back",
                                  describe_owner(owner));
  }
  start_heartbeat();
}

RunLock::~RunLock() {
  {
    const std::lock_guard guard(mutex_);
    stops_ = true;
  }
  stop_.notify_all();
  heartbeat_.join();
  file_ = {};  // closed first: NFS keeps a file that is deleted while it is open
  try {
    check_still_owned();
    io_.unlink(path_);
  } catch (const Error&) {
    // Another process owns it now.
  }
}

void RunLock::start_heartbeat() {
  // The thread inherits the mask. Signals must reach the main thread, whose handlers request the stop.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  heartbeat_ = std::thread([this] { beat(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// False if there is a lock already.
bool RunLock::try_create() {
  file_ = Descriptor(io_, io_.open(path_, O_CREAT | O_EXCL | O_RDWR));
  if (file_.value() < 0) {
    if (errno == EEXIST) return false;
    fail_storage(path_, "create", errno);
  }
  const std::string text = text_of(self_, 0);
  const ssize_t done = io_.pwrite(file_.value(), text.data(), text.size(), 0);
  if (done == std::ssize(text) && io_.fsync(file_.value()) == 0) return true;
  // A short write sets no errno, and means a full disk.
  const int error = done < 0 || done == std::ssize(text) ? errno : ENOSPC;
  io_.unlink(path_);
  fail_storage(path_, "write", error);
}

std::optional<std::string> RunLock::read() const {
  return read_lock(io_, path_);
}

/// Returns when the owner is known to be gone; refuses if it is alive.
void RunLock::wait_until_gone(const std::string& text, const RunLockWait& wait) const {
  const Owner owner = parse_process(text);
  const bool copied = is_copy(owner, self_);
  if (copied && has_hard_links(path_)) return;
  const ProcessState state = state_of(owner);
  if (state == ProcessState::kGone) return;
  // The owner of a copied lock owns another directory. But some file systems change inodes, so look whether
  // its heartbeat reaches this one.
  if (state == ProcessState::kRuns && !copied) {
    const Clock::time_point end = after(times_.ending_seconds);
    while (state_of(owner) == ProcessState::kRuns) {
      if (Clock::now() > end) refuse(text);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return;
  }
  if (agree(owner, self_, {"job"}) && restarts(owner) < restarts(self_)) return;
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
    const std::optional<std::string> now = read();
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

/// Removes the lock with the text `text`. Renames first and compares then: another start may have removed
/// that lock and made its own just before the rename. That one goes back.
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

void RunLock::beat() {
  const auto interval = std::chrono::duration<double>(times_.heartbeat_seconds);
  uint64_t count = 0;
  std::unique_lock guard(mutex_);
  while (!stop_.wait_for(guard, interval, [this] { return stops_; })) {
    const std::string text = text_of(self_, ++count);
    // One lost heartbeat is no reason to stop training, so errors are ignored.
    (void)io_.pwrite(file_.value(), text.data(), text.size(), 0);
    (void)io_.fsync(file_.value());  // else other machines may not see it
  }
}

void RunLock::check_still_owned() const {
  const std::optional<std::string> text = read();
  const Owner owner = parse_process(text.value_or(""));
  if (!text || !agree(owner, self_, {"nonce"}))
    fail(ExitCode::kStorage, "{}: this run was taken over{}", path_.parent_path().string(),
         text ? " by " + describe_owner(owner) : ": its LOCK is gone");
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
