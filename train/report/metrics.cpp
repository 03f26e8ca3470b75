#include "train/report/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "data/whole_file.h"
#include "model/core/error.h"
#include "train/report/metrics_lines.h"

namespace ripstop {
namespace {

[[noreturn]] void fail_storage(const char* what, const std::filesystem::path& path) {
  fail(ExitCode::kStorage, "cannot {} {}: {}", what, path.string(), std::strerror(errno));
}

// Calls visit(line) for every whole line. Text after the last line end is a torn line.
template <class Visit>
void for_each_line(const std::filesystem::path& path, Visit visit) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_storage("open", path);
  std::string line;
  for (int64_t number = 1; std::getline(file, line) && !file.eof(); ++number) {
    try {
      visit(line);
    } catch (const Error& error) {
      fail(error.code(), "{}:{}: {}", path.string(), number, error.what());
    }
  }
  if (file.bad()) fail_storage("read", path);
}

// Owns a file descriptor.
struct Descriptor {
  int value = -1;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

void write_all(int descriptor, const std::string& text, const std::filesystem::path& path) {
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = ::write(descriptor, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_storage("write", path);
    written += static_cast<size_t>(count);
  }
}

// The offset at which the last whole line ends. Reads backwards, as the file may be long.
off_t end_of_whole_lines(int descriptor, off_t size, const std::filesystem::path& path) {
  char block[4096];
  while (size > 0) {
    const off_t begin = size > static_cast<off_t>(sizeof block) ? size - static_cast<off_t>(sizeof block) : 0;
    const ssize_t count = ::pread(descriptor, block, static_cast<size_t>(size - begin), begin);
    if (count != size - begin) fail_storage("read", path);
    for (ssize_t i = count; i > 0; --i)
      if (block[i - 1] == '\n') return begin + i;
    size = begin;
  }
  return 0;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path) {
  Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)};
  if (file.value < 0) fail_storage("open", path);
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail_storage("look at", path);
  const off_t whole = end_of_whole_lines(file.value, status.st_size, path);
  if (whole != status.st_size && ::ftruncate(file.value, whole) != 0) fail_storage("cut", path);
  descriptor_ = std::exchange(file.value, -1);
}

MetricsFile::~MetricsFile() {
  ::close(descriptor_);
}

template <class Event>
void MetricsFile::write(const Event& event) {
  append(line_of(event));
}

template void MetricsFile::write(const StartEvent&);
template void MetricsFile::write(const StepMetrics&);
template void MetricsFile::write(const ValidationEvent&);
template void MetricsFile::write(const CheckpointEvent&);
template void MetricsFile::write(const WarningEvent&);
template void MetricsFile::write(const EndEvent&);

void MetricsFile::sync() {
  if (::fsync(descriptor_) != 0) fail_storage("sync", path_);
}

void MetricsFile::append(const std::string& line) {
  struct stat before {};
  if (::fstat(descriptor_, &before) != 0) fail_storage("look at", path_);
  try {
    write_all(descriptor_, line, path_);
  } catch (const Error&) {
    // The next line would continue half a line, and readers would lose both.
    if (::ftruncate(descriptor_, before.st_size) != 0) fail_storage("cut", path_);
    throw;
  }
}

MetricsLog read_metrics(const std::filesystem::path& path) {
  MetricsLog log;
  for_each_line(path, [&](const std::string& line) { add_line(line, log); });
  return log;
}

void cut_to_step(const std::filesystem::path& path, int64_t step) {
  if (!std::filesystem::exists(path)) return;
  std::string kept;
  for_each_line(path, [&](const std::string& line) {
    if (step_of_line(line) <= step) kept += line + "\n";
  });
  if (kept.size() != std::filesystem::file_size(path)) write_whole_file(path, kept);
}

}  // namespace ripstop
