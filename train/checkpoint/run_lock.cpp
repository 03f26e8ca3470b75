#include "train/checkpoint/run_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <thread>

#include "model/core/error.h"

namespace ripstop {
namespace {

constexpr const char* kFileName = "LOCK";
constexpr int64_t kMostBytes = 4096;
using Clock = std::chrono::steady_clock;

/// The text of a lock; nothing where there is none, or none any more: its owner may take it away at any time.
std::optional<std::string> read_where_there(Io& io, const std::filesystem::path& path) {
  const auto gone = [&] {
    Io::Status status;
    return io.status(path, status) != 0 && errno == ENOENT;
  };
  if (gone()) return std::nullopt;
  try {
    return read_file(io, path, kMostBytes);
  } catch (const Error&) {
    if (gone()) return std::nullopt;
    throw;
  }
}

/// Who owns a lock: the lines "key value" of its file.
using Owner = std::map<std::string, std::string>;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// When a process began, in clock ticks since the machine did: with the number of the process, its identity.
/// Empty where no such process runs. Source: proc(5), /proc/pid/stat, field 22.
std::string start_time(const std::string& pid) {
  const std::string line = first_line("/proc/" + pid + "/stat");
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22 && fields >> field; ++number)
    if (number == 3 && (field == "Z" || field == "X"))
      return "";  // it has ended, and its parent has not asked
  return field;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

Owner this_process() {
  std::error_code error;
  std::random_device random;
  const std::string pid = std::to_string(::getpid());
  return {{"host", host_name()},
          {"boot", first_line("/proc/sys/kernel/random/boot_id")},
          {"namespace", std::filesystem::read_symlink("/proc/self/ns/pid", error).string()},
          {"pid", pid},
          {"started", start_time(pid)},
          {"job", environment("SLURM_JOB_ID")},
          {"restart", environment("SLURM_RESTART_COUNT")},
          {"nonce", fmt::format("{:08x}{:08x}", random(), random())}};
}

std::string text_of(const Owner& owner, uint64_t beat) {
  std::string text;
  for (const auto& [key, value] : owner) text += key + " " + value + "\n";
  return text + fmt::format("~beat {:020}\n", beat);
}

Owner parse(const std::string& text) {
  Owner owner;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) owner[line.substr(0, space)] = line.substr(space + 1);
  }
  return owner;
}

std::string describe(const Owner& owner) {
  const auto value = [&](const char* key) {
    const auto found = owner.find(key);
    return found == owner.end() || found->second.empty() ? std::string("?") : found->second;
  };
  std::string text = fmt::format("process {} on {}", value("pid"), value("host"));
  if (value("job") != "?") text += fmt::format(" (job {})", value("job"));
  return text;
}

bool same(const Owner& a, const Owner& b, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto x = a.find(key), y = b.find(key);
    if (x == a.end() || y == b.end() || x->second.empty() || x->second != y->second) return false;
  }
  return true;
}

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Whether both are processes that the same /proc shows.
bool is_on_this_machine(const Owner& owner, const Owner& self) {
  return same(owner, self, {"host", "boot", "namespace"}) && owner.count("pid") != 0 &&
         owner.count("started") != 0;
}

/// Of an owner on this machine.
bool is_running(const Owner& owner) {
  return !owner.at("started").empty() && start_time(owner.at("pid")) == owner.at("started");
}

int64_t restarts(const Owner& owner) {
  const auto found = owner.find("restart");
  return found == owner.end() ? 0 : std::atoll(found->second.c_str());
}

}  // namespace

class RunLock::Heart {
 public:
  Heart(Io& io, const std::filesystem::path& directory, const RunLockTimes& times);
  ~Heart();
  void check_still_owned() const;
  const std::string& takeover() const { return takeover_; }

 private:
  bool try_create();
  std::optional<std::string> read() const;
  void wait_until_gone(const std::string& text);
  [[noreturn]] void refuse(const std::string& text) const;
  void take_away(const std::string& text);
  void beat();

  Io* io_;
  std::filesystem::path path_;
  RunLockTimes times_;
  Owner self_;
  std::string takeover_;
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable stop_;
  bool stops_ = false;
  std::thread thread_;
};

RunLock::Heart::Heart(Io& io, const std::filesystem::path& directory, const RunLockTimes& times)
    : io_(&io), path_(directory / kFileName), times_(times), self_(this_process()) {
  constexpr int kAttempts = 3;  // another start may win a race for a stale lock
  for (int attempt = 0; !try_create(); ++attempt) {
    const std::optional<std::string> text = read();
    if (attempt >= kAttempts) refuse(text.value_or(""));
    if (!text) continue;
    wait_until_gone(*text);
    take_away(*text);
    takeover_ =
        fmt::format("took over from {}, which ended without giving the run back", describe(parse(*text)));
  }
  // Signals are the main thread's.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { beat(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

RunLock::Heart::~Heart() {
  {
    const std::lock_guard guard(mutex_);
    stops_ = true;
  }
  stop_.notify_all();
  thread_.join();
  io_->close(file_);
  try {
    check_still_owned();
    io_->unlink(path_);
  } catch (const Error&) {
    // It is another's now.
  }
}

/// False where there is a lock already.
bool RunLock::Heart::try_create() {
  file_ = io_->open(path_, O_CREAT | O_EXCL | O_RDWR);
  if (file_ < 0) {
    if (errno == EEXIST) return false;
    fail_storage(path_, "create it", errno);
  }
  const std::string text = text_of(self_, 0);
  const ssize_t done = io_->pwrite(file_, text.data(), text.size(), 0);
  if (done == static_cast<ssize_t>(text.size()) && io_->fsync(file_) == 0) return true;
  const int error = done < 0 ? errno : ENOSPC;
  io_->close(file_);
  io_->unlink(path_);
  fail_storage(path_, "write", error);
}

/// The lock as it stands; nothing where there is none any more.
std::optional<std::string> RunLock::Heart::read() const {
  return read_where_there(*io_, path_);
}

/// Returns once the owner is known to be gone; refuses where it lives.
void RunLock::Heart::wait_until_gone(const std::string& text) {
  const Owner owner = parse(text);
  if (is_on_this_machine(owner, self_)) {
    const Clock::time_point end = after(times_.ending_seconds);
    while (is_running(owner)) {
      if (Clock::now() > end) refuse(text);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return;
  }
  if (same(owner, self_, {"job"}) && restarts(owner) < restarts(self_)) return;
  const Clock::time_point end = after(times_.patience_seconds);
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const std::optional<std::string> now = read();
    if (!now) return;
    if (*now != text) refuse(*now);
  }
}

void RunLock::Heart::refuse(const std::string& text) const {
  throw Error(ExitCode::kStorage,
              fmt::format("{}: this run is owned by {}, which is alive", path_.parent_path().string(),
                          describe(parse(text))),
              "wait for it to end, or give this run another directory");
}

/// Removes the lock that holds `text`. Moved first and looked at again, as another start may have done the
/// same and made its own meanwhile.
void RunLock::Heart::take_away(const std::string& text) {
  std::filesystem::path aside = path_;
  aside += ".stale." + self_.at("nonce");
  if (io_->rename(path_, aside) != 0) {
    if (errno == ENOENT) return;
    fail_storage(path_, "move it aside", errno);
  }
  const std::string found = read_file(*io_, aside, kMostBytes);
  if (found != text) {
    io_->rename(aside, path_);
    refuse(found);
  }
  io_->unlink(aside);
}

void RunLock::Heart::beat() {
  const auto interval = std::chrono::duration<double>(times_.heartbeat_seconds);
  uint64_t count = 0;
  std::unique_lock guard(mutex_);
  while (!stop_.wait_for(guard, interval, [this] { return stops_; })) {
    const std::string text = text_of(self_, ++count);
    (void)io_->pwrite(file_, text.data(), text.size(), 0);  // a beat missed is no reason to stop training
    (void)io_->fsync(file_);
  }
}

void RunLock::Heart::check_still_owned() const {
  const std::optional<std::string> text = read();
  const Owner owner = parse(text.value_or(""));
  if (!text || !same(owner, self_, {"nonce"}))
    fail(ExitCode::kStorage, "{}: this run was taken over{}", path_.parent_path().string(),
         text ? " by " + describe(owner) : ": its LOCK is gone");
}

RunLock::RunLock(Io& io, const std::filesystem::path& directory, const RunLockTimes& times)
    : heart_(std::make_unique<Heart>(io, directory, times)) {}

RunLock::~RunLock() = default;

void RunLock::check_still_owned() const {
  heart_->check_still_owned();
}

const std::string& RunLock::takeover() const {
  return heart_->takeover();
}

RunOwner find_run_owner(Io& io, const std::filesystem::path& directory) {
  constexpr double kSlackSeconds = 30;
  const std::filesystem::path path = directory / kFileName;
  const std::optional<std::string> text = read_where_there(io, path);
  if (!text) return {};
  const Owner owner = parse(*text);
  RunOwner found{RunOwner::State::kGone, describe(owner)};
  bool alive = false;
  if (is_on_this_machine(owner, this_process())) {
    alive = is_running(owner);
  } else {
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
