#include "train/report/log_writer.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/process/blocked_signals.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// The pause between two attempts to write lines that wait, and between two checks of the path.
constexpr std::chrono::milliseconds kPause{1000};

// trouble() reports a thread that has work and does nothing for longer.
constexpr std::chrono::seconds kLongCall{10};

// The lines of `old` that `found` lacks: all lines after the last line of `found` that is also in `old`.
std::string_view lines_lacking(std::string_view old, std::string_view found) {
  std::unordered_map<std::string_view, size_t> end_of;
  for (size_t begin = 0, end = 0; (end = old.find('\n', begin)) != old.npos; begin = end + 1)
    end_of[old.substr(begin, end - begin)] = end + 1;
  while (!found.empty()) {
    found.remove_suffix(1);  // the line end
    const size_t begin = found.rfind('\n') + 1;
    if (const auto at = end_of.find(found.substr(begin)); at != end_of.end()) return old.substr(at->second);
    found = found.substr(0, begin);
  }
  return old;
}

}  // namespace

/// Unlocks the mutex while this object lives.
class LogWriter::Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& guard) : guard_(guard) { guard_.unlock(); }
  ~Unlocked() { guard_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& guard_;
};

LogWriter::LogWriter(const std::filesystem::path& path, LogRights rights, const std::filesystem::path& second)
    : path_(path), rights_(std::move(rights)), file_(path), look_at_(Clock::now() + kPause) {
  if (!second.empty()) second_.emplace(second);
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

LogWriter::~LogWriter() {
  ends_within(std::chrono::milliseconds(0));
  thread_.join();
}

void LogWriter::add(std::string line, std::string record) {
  std::unique_lock guard(mutex_);
  if (bytes_ > kMostWaitingBytes &&
      !await(guard, [&] { return bytes_ <= kMostWaitingBytes || failure_.has_value(); }))
    fail_to_wait();
  if (bytes_ > kMostWaitingBytes) throw Error(*failure_);
  lines_.push_back({std::move(line), std::move(record)});
  bytes_ += lines_.back().bytes();
  wake();
}

bool LogWriter::take_back() {
  const std::lock_guard guard(mutex_);
  if (lines_.size() <= (is_writing_ || has_line_ ? 1 : 0)) return false;
  bytes_ -= lines_.back().bytes();
  lines_.pop_back();
  return true;
}

void LogWriter::sync() {
  std::unique_lock guard(mutex_);
  const int64_t request = ++asked_;
  wake();
  if (!await(guard, [&] { return answered_ >= request; })) fail_to_wait();
  if (failure_) throw Error(*failure_);
}

bool LogWriter::has_given_up() const {
  const std::lock_guard guard(mutex_);
  return waited_seconds_ > rights_.patience_seconds;
}

int64_t LogWriter::waiting_lines() const {
  const std::lock_guard guard(mutex_);
  return std::ssize(lines_);
}

std::optional<Error> LogWriter::trouble() const {
  const std::lock_guard guard(mutex_);
  const bool stands_still = still_since_ && (Clock::now() - *still_since_ > kLongCall ||
                                             waited_seconds_ > rights_.patience_seconds);
  if (failure_ || !stands_still) return failure_;
  return Error(ExitCode::kStorage, path_.parent_path().string() + " does not answer");
}

std::vector<std::string> LogWriter::take_notes() {
  const std::lock_guard guard(mutex_);
  return std::exchange(notes_, {});
}

bool LogWriter::ends_within(std::chrono::milliseconds most) {
  std::unique_lock guard(mutex_);
  stops_ = true;
  wake();
  return changed_.wait_for(guard, most, [&] { return has_ended_; });
}

// Called with the mutex locked.
void LogWriter::wake() {
  wakes_ = true;
  wake_.notify_one();
}

// Called with the mutex locked.
void LogWriter::progressed() {
  still_since_ = Clock::now();
  waited_seconds_ = 0;
  changed_.notify_all();
}

// Waits until the thread makes `done` true. Returns false if the thread does nothing for too long. Waits in
// short pieces, so that a pause of this whole process (SIGSTOP) counts as at most one piece.
bool LogWriter::await(std::unique_lock<std::mutex>& guard, const std::function<bool()>& done) {
  constexpr std::chrono::duration<double> kPiece{0.1};
  while (waited_seconds_ <= rights_.patience_seconds) {
    if (changed_.wait_for(guard, kPiece, done)) return true;
    waited_seconds_ += kPiece.count();
  }
  return done();
}

void LogWriter::fail_to_wait() const {
  fail(ExitCode::kStorage,
       "{} does not answer: this process waited {:.0f} s for the storage, and {} not there", path_.string(),
       rights_.patience_seconds,
       lines_.size() == 1 ? "1 line is" : fmt::format("{} lines are", lines_.size()));
}

void LogWriter::run() {
  std::unique_lock guard(mutex_);
  while (!has_ended_) {
    wake_.wait_for(guard, kPause, [&] { return wakes_; });
    wakes_ = false;
    const bool is_last = stops_;
    const int64_t request = asked_;
    if (!still_since_) progressed();
    std::optional<Error> failure;
    bool must_wait = false;
    try {
      must_wait = !work(guard, /*syncs=*/request > answered_);
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure.emplace(ExitCode::kStorage, fmt::format("{}: {}", path_.string(), error.what()));
    }
    failure_ = failure;
    if (!must_wait) {
      answered_ = request;
      still_since_.reset();
    }
    has_ended_ = is_last;
    changed_.notify_all();
  }
}

// Writes the lines that wait, and syncs the file if `syncs`. Returns false if this process may not write now.
bool LogWriter::work(std::unique_lock<std::mutex>& guard, bool syncs) {
  if (syncs || Clock::now() >= look_at_) {
    const Unlocked outside(guard);
    if (rights_.check_owner && !file_.is_at_path()) follow_path();
    look_at_ = Clock::now() + kPause;
  }
  // Writes line by line, so that a nearly full disk gets the lines that still fit.
  while (!lines_.empty()) {
    const Entry& entry = lines_.front();  // stays in place while others add or take back
    is_writing_ = true;
    bool may_write = false;
    try {
      const Unlocked outside(guard);
      may_write = rights_.may_write();
      if (may_write && !has_line_) file_.append(entry.line);
      has_line_ = may_write || has_line_;
      if (may_write && second_) second_->append(entry.record);
    } catch (...) {
      is_writing_ = false;
      throw;
    }
    is_writing_ = false;
    if (!may_write) return false;
    has_line_ = false;
    bytes_ -= entry.bytes();
    lines_.pop_front();
    progressed();
  }
  if (!syncs) return true;
  const Unlocked outside(guard);
  file_.sync();
  if (second_) second_->sync();
  return true;
}

// Goes on in the file that is at the path now, or in a new one. Checks the owner again after opening: a
// process that takes a run over changes LOCK first, then the log.
void LogWriter::follow_path() {
  rights_.check_owner();  // opening may make the file, or cut a torn line
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(path_, ignored);
  AppendFile found(path_);
  rights_.check_owner();
  const std::string old = file_.text(), now = found.text();
  const std::string_view lacking = lines_lacking(old, now);
  if (!lacking.empty()) found.append(lacking);
  found.sync();
  file_ = std::move(found);
  const std::lock_guard guard(mutex_);
  notes_.push_back(fmt::format(
      "{} was {}: the log goes on in {}, which got the {} that it lacked; edit a copy while the run lives",
      path_.string(), is_there ? "replaced" : "removed",
      is_there ? "the file that is there now" : "a new file",
      counted(std::count(lacking.begin(), lacking.end(), '\n'), "line")));
}

}  // namespace ripstop
