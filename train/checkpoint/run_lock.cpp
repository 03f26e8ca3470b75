#include "train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <signal.h>
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

constexpr const char* kFileName = "LOCK";
constexpr int64_t kMostBytes = 4096;
using Clock = std::chrono::steady_clock;

/// Reads LOCK; nullopt if it does not exist, or if its owner deletes it meanwhile.
std::optional<std::string> read_lock(Io& io, const std::filesystem::path& path) {
  try {
    return read_whole_file(io, path, kMostBytes);
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

Owner this_owner() {
  std::random_device random;
  Owner owner = this_process();
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

int64_t restarts(const Owner& owner) {
  const auto found = owner.find("restart");
  return found == owner.end() ? 0 : parse_whole_number(found->second).value_or(0);
}

}  // namespace

RunLock::RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times)
    : io_(io), path_(directory / kFileName), times_(times), self_(this_owner()) {
  constexpr int kAttempts = 3;  // another start may win the race for a stale lock
  for (int attempt = 0; !try_create(); ++attempt) {
    const std::optional<std::string> text = read();
    if (attempt >= kAttempts) refuse(text.value_or(""));
    if (!text) continue;
    wait_until_gone(*text);
    take_away(*text);
    takeover_ = fmt::format("took over from {}, which ended without giving the run back",
                            describe_owner(parse_process(*text)));
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
void RunLock::wait_until_gone(const std::string& text) const {
  const Owner owner = parse_process(text);
  if (state_of(owner) != ProcessState::kElsewhere) {
    const Clock::time_point end = after(times_.ending_seconds);
    while (state_of(owner) == ProcessState::kRuns) {
      if (Clock::now() > end) refuse(text);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return;
  }
  if (agree(owner, self_, {"job"}) && restarts(owner) < restarts(self_)) return;
  const Clock::time_point end = after(times_.patience_seconds);
  while (Clock::now() < end) {
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
  const std::string found = read_whole_file(io_, aside, kMostBytes);
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
  const std::filesystem::path path = directory / kFileName;
  const std::optional<std::string> text = read_lock(io, path);
  if (!text) return {};
  const Owner owner = parse_process(*text);
  RunOwner found{RunOwner::State::kGone, describe_owner(owner)};
  const ProcessState state = state_of(owner);
  bool alive = state == ProcessState::kRuns;
  if (state == ProcessState::kElsewhere) {
    std::error_code error;
    const auto age =
        std::filesystem::file_time_type::clock::now() - std::filesystem::last_write_time(path, error);
    alive = !error &&
            std::chrono::duration<double>(age).count() <= RunLockTimes{}.patience_seconds + kSlackSeconds;
  }
  if (alive) found.state = RunOwner::State::kAlive;
  return found;
}

}  // namespace ripstop
