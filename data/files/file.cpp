#include "data/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

namespace ripstop {
namespace {

constexpr int64_t kCopyBytes = 1 << 20;
constexpr int64_t kAppendBytes = 1 << 16;

void sync_file(const Descriptor& file, const std::filesystem::path& path) {
  while (file.io().fsync(file.value()) != 0)
    if (errno != EINTR) fail_storage(path, "sync", errno);
}

void read_fully(const Descriptor& file, const std::filesystem::path& path, ExitCode refusal, int64_t offset,
                void* out, int64_t bytes) {
  char* to = static_cast<char*>(out);
  int tries = 0;
  while (bytes > 0) {
    const ssize_t got = file.io().pread(file.value(), to, static_cast<size_t>(bytes), offset);
    if (got > 0) {
      to += got, offset += got, bytes -= got;
    } else if (got == 0) {
      fail(refusal, "{}: ends at byte {}, {} more were expected", path.string(), offset, bytes);
    } else if (errno != EINTR) {
      wait_for_storage(path, fmt::format("read at byte {}", offset), errno, tries);
    }
  }
}

/// Calls write_some(bytes, count, done) until all bytes are written. write_some returns as write(2) does.
template <class WriteSome>
void write_fully(const std::filesystem::path& path, const void* data, int64_t bytes, WriteSome write_some) {
  const char* from = static_cast<const char*>(data);
  for (int64_t done = 0; done < bytes;) {
    const ssize_t count = write_some(from + done, static_cast<size_t>(bytes - done), done);
    if (count < 0 && errno == EINTR) continue;
    // 0 bytes written without an error: the device has no room.
    if (count <= 0) fail_storage(path, "write", count < 0 ? errno : ENOSPC);
    done += count;
  }
}

}  // namespace

void wait_for_storage(const std::filesystem::path& path, std::string_view what, int error, int& tries) {
  constexpr int kTries = 3;
  // Network file systems answer EIO or ESTALE while a server restarts.
  if ((error != EIO && error != ESTALE) || ++tries == kTries) fail_storage(path, what, error);
  std::this_thread::sleep_for(std::chrono::milliseconds(100 * tries));
}

InputFile::InputFile(const std::filesystem::path& path, ExitCode refusal)
    : InputFile(posix_io(), path, refusal, 0) {}

InputFile::InputFile(Io& io, const std::filesystem::path& path)
    : InputFile(io, path, ExitCode::kStorage, O_NOFOLLOW) {}

InputFile::InputFile(Io& io, const std::filesystem::path& path, ExitCode refusal, int flags)
    : path_(path), refusal_(refusal) {
  // O_NONBLOCK: open() does not wait for a writer if the file is a named pipe, which is refused below.
  file_ = Descriptor(io, io.open(path, O_RDONLY | O_NONBLOCK | flags));
  // EWOULDBLOCK: a client of an NFS or Samba server holds a lease. Wait until the client gives it up.
  if (Io::Status status;
      file_.value() < 0 && errno == EWOULDBLOCK && io.status(path, status) == 0 && status.is_file)
    file_ = Descriptor(io, io.open(path, O_RDONLY | flags));
  if (file_.value() < 0 && errno == ELOOP && (flags & O_NOFOLLOW) != 0)
    fail(refusal, "{}: is not a plain file but a symbolic link", path.string());
  if (file_.value() < 0) fail_storage(path, "open", errno, refusal);
  Io::Status status;
  if (io.status(file_.value(), status) != 0) fail_storage(path, "look at it", errno, refusal);
  if (!status.is_file) fail(refusal, "{}: is not a plain file", path.string());
  bytes_ = status.bytes;
}

void InputFile::read_at(int64_t offset, void* out, int64_t bytes) const {
  read_fully(file_, path_, refusal_, offset, out, bytes);
}

OutputFile::OutputFile(Io& io, const std::filesystem::path& path, Mode mode) : path_(path) {
  file_ = Descriptor(io, io.open(path, O_WRONLY | (mode == Mode::kCreate ? O_CREAT | O_EXCL : 0)));
  if (file_.value() < 0) fail_storage(path, mode == Mode::kCreate ? "create" : "open for writing", errno);
}

void OutputFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  write_fully(path_, data, bytes, [&](const char* from, size_t count, int64_t done) {
    return file_.io().pwrite(file_.value(), from, count, offset + done);
  });
}

void OutputFile::wait_written(int64_t offset, int64_t bytes) const {
  while (file_.io().wait_written(file_.value(), offset, bytes) != 0)
    if (errno != EINTR) fail_storage(path_, "write", errno);
}

void OutputFile::append(const void* data, int64_t bytes) {
  if (static_cast<int64_t>(buffer_.size()) + bytes > kAppendBytes) flush();
  if (bytes >= kAppendBytes) {
    write_at(appended_, data, bytes);
  } else {
    buffer_.reserve(kAppendBytes);
    buffer_.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
  }
  appended_ += bytes;
}

void OutputFile::flush() {
  const int64_t pending = static_cast<int64_t>(buffer_.size());
  write_at(appended_ - pending, buffer_.data(), pending);
  buffer_.clear();
}

void OutputFile::sync() {
  flush();
  sync_file(file_, path_);
}

void OutputFile::close() {
  flush();
  // Never close twice: Linux frees the descriptor even if close fails; a second call could hit another file.
  if (file_.io().close(file_.release()) != 0 && errno != EINTR) fail_storage(path_, "close", errno);
}

AppendFile::AppendFile(Io& io, const std::filesystem::path& path)
    // O_APPEND: while a process takes over from another, both may append, but must not overwrite lines.
    : path_(path), file_(io, io.open(path, O_RDWR | O_APPEND)) {
  // O_EXCL: without it, a link that leads nowhere would make a file at its target.
  if (file_.value() < 0 && errno == ENOENT)
    file_ = Descriptor(io, io.open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL));
  if (file_.value() < 0 && errno == EEXIST) {  // a link, or another process has just made the file
    file_ = Descriptor(io, io.open(path, O_RDWR | O_APPEND));
    if (file_.value() < 0 && errno == ENOENT)
      fail(ExitCode::kStorage, "{}: is a symbolic link that leads nowhere", path.string());
  }
  if (file_.value() < 0) fail_storage(path, "open", errno);
  Io::Status status;
  if (io.status(file_.value(), status) != 0) fail_storage(path, "look at it", errno);
  // A named pipe would take lines until it is full, and then block.
  if (!status.is_file) fail(ExitCode::kStorage, "{}: is not a plain file", path.string());
  const int64_t whole = end_of_whole_lines();
  if (whole != size()) cut(whole);
}

int64_t AppendFile::size() const {
  Io::Status status;
  if (file_.io().status(file_.value(), status) != 0) fail_storage(path_, "look at it", errno);
  return status.bytes;
}

int64_t AppendFile::end_of_whole_lines() const {
  char block[4096];
  for (int64_t begin = 0, end = size(); end > 0; end = begin) {
    begin = std::max<int64_t>(0, end - static_cast<int64_t>(sizeof block));
    read_fully(file_, path_, ExitCode::kStorage, begin, block, end - begin);
    const std::string_view text(block, static_cast<size_t>(end - begin));
    if (const size_t at = text.rfind('\n'); at != text.npos) return begin + static_cast<int64_t>(at) + 1;
  }
  return 0;
}

void AppendFile::append(std::string_view line) {
  const int64_t before = size();
  int64_t written = 0;
  try {
    write_fully(path_, line.data(), std::ssize(line), [&](const char* from, size_t count, int64_t done) {
      written = done;
      return file_.io().write(file_.value(), from, count);
    });
  } catch (const Error&) {
    // Removes the partial line, which the next would continue, unless another process has appended to it.
    if (written > 0 && size() == before + written) cut(before);
    throw;
  }
}

void AppendFile::cut(int64_t bytes) {
  while (file_.io().truncate(file_.value(), bytes) != 0)
    if (errno != EINTR) fail_storage(path_, "cut", errno);
}

void AppendFile::sync() {
  sync_file(file_, path_);
}

bool AppendFile::is_at_path() const {
  struct stat own {
  }, there{};
  if (::fstat(file_.value(), &own) != 0) return true;
  if (::stat(path_.c_str(), &there) != 0) return errno != ENOENT;
  return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

std::string AppendFile::text() const {
  std::string text(static_cast<size_t>(size()), '\0');
  read_fully(file_, path_, ExitCode::kStorage, 0, text.data(), std::ssize(text));
  return text;
}

void copy_begin(const InputFile& from, OutputFile& to, int64_t offset, int64_t bytes) {
  std::string buffer(static_cast<size_t>(std::min(bytes, kCopyBytes)), '\0');
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(bytes - done, kCopyBytes);
    from.read_at(done, buffer.data(), part);
    to.write_at(offset + done, buffer.data(), part);
    done += part;
  }
}

}  // namespace ripstop
