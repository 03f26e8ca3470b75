#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace ripstop {
namespace {

constexpr int64_t kCopyBytes = 1 << 20;
constexpr int64_t kAppendBytes = 1 << 16;

}  // namespace

InputFile::InputFile(const std::filesystem::path& path, ExitCode refusal) : path_(path), refusal_(refusal) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(refusal, "{}: cannot open: {}", path.string(), std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) {
    ::close(std::exchange(descriptor_, -1));
    fail(refusal, "{}: not a file", path.string());
  }
  bytes_ = status.st_size;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      refusal_(other.refusal_),
      descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(refusal_, other.refusal_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void InputFile::read_at(int64_t offset, void* out, int64_t bytes) const {
  char* at = static_cast<char*>(out);
  int tries = 0;
  while (bytes > 0) {
    const ssize_t got = pread(descriptor_, at, static_cast<size_t>(bytes), offset);
    if (got > 0) {
      at += got;
      offset += got;
      bytes -= got;
    } else if (got == 0) {
      fail(refusal_, "{}: ends at byte {}, {} more were expected", path_.string(), offset, bytes);
    } else if (errno != EINTR) {
      const int error = errno;
      if ((error != EIO && error != ESTALE) || ++tries == 3) {
        fail(ExitCode::kStorage, "{}: cannot read at byte {}: {}", path_.string(), offset,
             std::strerror(error));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * tries));
    }
  }
}

OutputFile::OutputFile(const std::filesystem::path& path, Mode mode) : path_(path) {
  const int flags = mode == Mode::kCreate ? O_CREAT | O_EXCL : 0;
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0666);
  if (descriptor_ < 0) fail(ExitCode::kStorage, "{}: cannot write: {}", path.string(), std::strerror(errno));
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      appended_(other.appended_),
      buffer_(std::move(other.buffer_)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(appended_, other.appended_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

void OutputFile::write_at(int64_t offset, const void* data, int64_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = pwrite(descriptor_, at, static_cast<size_t>(bytes), offset);
    if (put > 0) {
      at += put;
      offset += put;
      bytes -= put;
    } else if (put == 0 || errno != EINTR) {
      fail(ExitCode::kStorage, "{}: cannot write at byte {}: {}", path_.string(), offset,
           put == 0 ? "no progress" : std::strerror(errno));
    }
  }
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
  if (fsync(descriptor_) != 0) {
    fail(ExitCode::kStorage, "{}: cannot sync: {}", path_.string(), std::strerror(errno));
  }
}

void copy_range(const InputFile& from, int64_t from_offset, OutputFile& to, int64_t to_offset,
                int64_t bytes) {
  std::string buffer(static_cast<size_t>(std::min(bytes, kCopyBytes)), '\0');
  for (int64_t done = 0; done < bytes;) {
    const int64_t part = std::min(bytes - done, kCopyBytes);
    from.read_at(from_offset + done, buffer.data(), part);
    to.write_at(to_offset + done, buffer.data(), part);
    done += part;
  }
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool done = descriptor >= 0 && fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!done) fail(ExitCode::kStorage, "{}: cannot sync: {}", directory.string(), std::strerror(error));
}

std::string read_whole_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal) {
  const InputFile file(path, refusal);
  if (file.bytes() > most_bytes) {
    fail(refusal, "{}: {} bytes, at most {} are accepted", path.string(), file.bytes(), most_bytes);
  }
  std::string text(static_cast<size_t>(file.bytes()), '\0');
  file.read_at(0, text.data(), file.bytes());
  return text;
}

}  // namespace ripstop
