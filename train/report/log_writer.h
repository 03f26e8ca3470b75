// LogWriter: appends lines to a log on a thread of its own.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "data/files/file.h"
#include "model/core/error.h"

namespace ripstop {

/// Who may write a log, and how long callers wait. The thread of the LogWriter calls the functions.
struct LogRights {
  /// Called before each write. Returns false if the write must wait. Throws Error if this process must not
  /// write any more.
  std::function<bool()> may_write = [] { return true; };
  /// Throws Error unless this process owns the log. If empty, the log does not follow a replaced file.
  std::function<void()> check_owner = {};
  /// The longest wait of callers for a file system that does not answer.
  double patience_seconds = std::numeric_limits<double>::infinity();
};

/// A log that grows by whole lines, in the order of add(). After opening, only its thread uses the file. A
/// line that cannot be written waits in memory.
///
/// If a program replaced or removed the open file, the thread goes on in the file that is at the path now, or
/// in a new one, and appends to it the lines of the old file after the last line that both files have.
/// take_notes() returns a text about this.
///
/// A second file may hold the same events in another form. Each record follows its line under the same
/// rights; if a program replaces the second file, the new file gets no records.
class LogWriter {
 public:
  /// Bytes of waiting lines above which add() waits: the lines of some 100,000 steps.
  static constexpr int64_t kMostWaitingBytes = int64_t{64} << 20;

  /// Opens or makes the file, cuts off a torn last line, and starts the thread. `second`: the new second
  /// file; empty: none. Throws Error(kStorage).
  explicit LogWriter(const std::filesystem::path& path, LogRights rights = {},
                     const std::filesystem::path& second = {});
  /// Tries once to write the lines that wait, and ends the thread. Blocks while the file system does not
  /// answer, so call ends_within() first.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// Adds `line`, which ends with a line end, and `record` for the second file, and returns; the thread
  /// writes them. Waits for room only above kMostWaitingBytes; then throws the Error of a
  /// failed attempt, or Error(kStorage) if the thread does nothing for LogRights::patience_seconds.
  void add(std::string line, std::string record = "");
  /// Removes the line that was added last, with its record. Returns false if its write has begun.
  bool take_back();
  /// Returns when all added lines are on the disk. Throws the Error of an attempt that began after the call,
  /// or Error(kStorage) if the thread has done nothing while callers waited, in this and earlier calls, for
  /// LogRights::patience_seconds.
  void sync();

  /// Whether callers have waited for LogRights::patience_seconds, and the thread has still done nothing.
  bool has_given_up() const;
  /// The number of lines that wait in memory.
  int64_t waiting_lines() const;
  /// The error of the last attempt, or an Error if the thread has work and did nothing for many seconds.
  std::optional<Error> trouble() const;
  /// Returns and removes the notes for people about files that were replaced or removed.
  std::vector<std::string> take_notes();
  /// Tells the thread to end, and waits for at most `most`. Returns false if it has not ended; then it may
  /// be in a call that does not return: do not destroy this object.
  bool ends_within(std::chrono::milliseconds most);

 private:
  using Clock = std::chrono::steady_clock;
  class Unlocked;
  struct Entry {
    std::string line, record;
    int64_t bytes() const { return std::ssize(line) + std::ssize(record); }
  };

  void run();
  bool work(std::unique_lock<std::mutex>& guard, bool syncs);
  void follow_path();
  void wake();
  void progressed();
  bool await(std::unique_lock<std::mutex>& guard, const std::function<bool()>& done);
  [[noreturn]] void fail_to_wait() const;

  const std::filesystem::path path_;
  const LogRights rights_;
  AppendFile file_;  ///< file_ and second_: used only by the thread
  std::optional<AppendFile> second_;
  bool has_line_ = false;            ///< the first entry's line is written, its record is not
  Clock::time_point look_at_;        ///< when the thread compares the file with the path again
  mutable std::mutex mutex_;         ///< guards all members below
  std::condition_variable wake_;     ///< wakes the thread
  std::condition_variable changed_;  ///< wakes callers that wait for the thread
  std::deque<Entry> lines_;          ///< the lines that wait
  int64_t bytes_ = 0;                ///< bytes of lines_
  bool is_writing_ = false;          ///< the write of the first line has begun
  bool wakes_ = false;               ///< the thread has work now
  bool stops_ = false, has_ended_ = false;
  int64_t asked_ = 0, answered_ = 0;              ///< calls of sync(), and those that the thread has answered
  std::optional<Clock::time_point> still_since_;  ///< last progress of the thread; nullopt: it has no work
  double waited_seconds_ = 0;  ///< time that callers have waited since the thread last did something
  std::optional<Error> failure_;
  std::vector<std::string> notes_;
  std::thread thread_;
};

}  // namespace ripstop
