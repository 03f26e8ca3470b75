// FaultIo: a file system that fails at a chosen call, or from it on.
#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Several threads may call it. The order in which it counts their calls then depends on their speed.
class FaultIo : public Io {
 public:
  enum class Kind {
    kNone,
    kError,        ///< the call fails with `error`
    kInterrupted,  ///< a read, write or sync fails with EINTR
    kShort,        ///< a read or write moves only a part
    kFlip,         ///< a write puts one wrong bit on the disk and reports success
    kKill,         ///< the process dies before the call
  };
  FaultIo() = default;
  /// Fails at call `call` as `what` says.
  FaultIo(Kind what, int64_t call, int number = EIO) : kind(what), error(number), at(call) {}

  Kind kind = Kind::kNone;
  int error = EIO;
  int64_t at = 0;         ///< number of the call, the first is 0
  bool for_good = false;  ///< all calls after it fail too
  bool syncs = false;     ///< whether fsync waits for the disk
  /// If not empty, only calls of pwrite for the file of this name count: one thread makes them in a fixed
  /// order.
  std::string pwrites_of;
  std::atomic<int64_t> calls = 0;
  std::atomic<int64_t> flips = 0;  ///< wrong bits that were put on the disk

  int open(const std::filesystem::path& path, int flags) override {
    return strikes() ? -1 : Io::open(path, flags);
  }
  int close(int file) override {
    const bool struck = strikes();
    const int status = Io::close(file);  // like Linux, closes the descriptor even if it reports an error
    if (struck) errno = error;
    return struck ? -1 : status;
  }
  ssize_t pwrite(int file, const void* bytes, size_t count, int64_t offset) override {
    bool now = false;
    const bool counts = pwrites_of.empty() || name_of(file) == pwrites_of;
    if (counts && strikes(true, &now, /*is_pwrite=*/true)) return -1;
    if (now && kind == Kind::kFlip) {
      std::string wrong(static_cast<const char*>(bytes), count);
      wrong[count / 2] = static_cast<char>(wrong[count / 2] ^ 4);
      ++flips;
      return Io::pwrite(file, wrong.data(), count, offset);
    }
    return Io::pwrite(file, bytes, part_of(count, now), offset);
  }
  ssize_t write(int file, const void* bytes, size_t count) override {
    bool now = false;
    return strikes(true, &now) ? -1 : Io::write(file, bytes, part_of(count, now));
  }
  ssize_t read(int file, void* bytes, size_t count) override {
    bool now = false;
    return strikes(true, &now) ? -1 : Io::read(file, bytes, part_of(count, now));
  }
  ssize_t pread(int file, void* bytes, size_t count, int64_t offset) override {
    bool now = false;
    return strikes(true, &now) ? -1 : Io::pread(file, bytes, part_of(count, now), offset);
  }
  int truncate(int file, int64_t bytes) override { return strikes() ? -1 : Io::truncate(file, bytes); }
  int fsync(int file) override {
    if (strikes(true)) return -1;
    return syncs ? Io::fsync(file) : 0;
  }
  void start_writing(int, int64_t, int64_t) override {}
  int wait_written(int file, int64_t offset, int64_t bytes) override {
    if (strikes(true)) return -1;
    return syncs ? Io::wait_written(file, offset, bytes) : 0;
  }
  void forget(int, int64_t, int64_t) override {}
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return strikes() ? -1 : Io::rename(from, to);
  }
  int unlink(const std::filesystem::path& path) override { return strikes() ? -1 : Io::unlink(path); }
  int mkdir(const std::filesystem::path& path) override { return strikes() ? -1 : Io::mkdir(path); }
  int rmdir(const std::filesystem::path& path) override { return strikes() ? -1 : Io::rmdir(path); }
  int list(const std::filesystem::path& directory, std::vector<Entry>& entries) override {
    return strikes() ? -1 : Io::list(directory, entries);
  }
  int status(int file, Status& status) override { return strikes() ? -1 : Io::status(file, status); }
  int status(const std::filesystem::path& path, Status& status) override {
    return strikes() ? -1 : Io::status(path, status);
  }
  int free_bytes(const std::filesystem::path& path, int64_t& bytes) override {
    return strikes() ? -1 : Io::free_bytes(path, bytes);
  }

 private:
  static std::string name_of(int file) {
    return std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", file)).filename();
  }
  /// Counts the call. Returns whether it must fail; sets `now` if it is the chosen one.
  bool strikes(bool moves_data = false, bool* now = nullptr, bool is_pwrite = false) {
    if (!pwrites_of.empty() && !is_pwrite) return false;
    const int64_t call = calls++;
    const bool struck = for_good ? call >= at : call == at;
    if (now != nullptr) *now = struck;
    if (!struck) return false;
    if (kind == Kind::kKill) ::raise(SIGKILL);
    errno = kind == Kind::kInterrupted ? EINTR : error;
    return kind == Kind::kError || (kind == Kind::kInterrupted && moves_data);
  }
  /// The bytes that this call moves: fewer than `count` if it is the chosen one of kShort.
  size_t part_of(size_t count, bool now) const {
    return now && kind == Kind::kShort && count > 1 ? count / 2 : count;
  }
};

/// Runs `body` in a child; false if the child was killed.
template <class Body>
bool survives(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      body();
    } catch (...) {
      _exit(2);
    }
    _exit(testing::Test::HasFailure() ? 3 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
  return !WIFSIGNALED(status);
}

}  // namespace ripstop
