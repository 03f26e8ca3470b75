#include "data/files/whole_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "data/files/directory.h"
#include "data/files/file.h"

namespace ripstop {

std::string read_whole_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal) {
  Io& io = posix_io();
  const Descriptor file(io, io.open(path, O_RDONLY));
  if (file.value() < 0) fail_storage(path, "open", errno, refusal);
  // The size is only a first guess: for a pipe, and below /proc, it is 0.
  constexpr int64_t kLeastBlock = 4096;
  Io::Status status;
  if (io.status(file.value(), status) != 0) fail_storage(path, "look at it", errno, refusal);
  std::string text;
  size_t filled = 0;
  int tries = 0;
  for (;;) {
    // Check what has arrived, not the size: /dev/zero has size 0 and no end.
    if (static_cast<int64_t>(filled) > most_bytes)
      fail(refusal, "{}: has more than {} bytes", path.string(), most_bytes);
    if (filled == text.size())
      text.resize(static_cast<size_t>(
          std::max({std::min(status.bytes, most_bytes) + 1, 2 * static_cast<int64_t>(filled), kLeastBlock})));
    const ssize_t got = io.read(file.value(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      // The file's contents are not to blame: the storage failed, whatever `refusal` is.
      wait_for_storage(path, "read", errno, tries);
      continue;
    }
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  text.resize(filled);
  return text;
}

std::string read_plain_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal) {
  const InputFile file(path, refusal);
  if (file.bytes() > most_bytes) fail(refusal, "{}: has more than {} bytes", path.string(), most_bytes);
  std::string bytes(static_cast<size_t>(file.bytes()), '\0');
  file.read_at(0, bytes.data(), file.bytes());
  return bytes;
}

std::string read_whole_file(Io& io, const std::filesystem::path& path, int64_t most_bytes) {
  const InputFile file(io, path);
  // Check before the buffer is made: a damaged file system may state any size.
  if (file.bytes() > most_bytes)
    fail(ExitCode::kStorage, "{}: has {} bytes, at most {} were expected", path.string(), file.bytes(),
         most_bytes);
  std::string bytes(static_cast<size_t>(file.bytes()), '\0');
  file.read_at(0, bytes.data(), file.bytes());
  return bytes;
}

std::string first_line(const std::filesystem::path& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 20;
  try {
    const std::string text = read_whole_file(path, kMostBytes, ExitCode::kStorage);
    return text.substr(0, text.find('\n'));
  } catch (const Error&) {
    return "";
  }
}

void create_file(Io& io, const std::filesystem::path& path, std::string_view bytes) {
  OutputFile file(io, path);
  file.write_at(0, bytes.data(), std::ssize(bytes));
  file.sync();
  file.close();
}

void write_whole_file(Io& io, const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path beside = path;
  beside += ".partial";
  (void)io.unlink(beside);  // a killed process may have left one
  try {
    // The bytes must be on the disk before the rename. Else a power loss may leave the new name with an empty
    // file.
    create_file(io, beside, bytes);
    rename_path(io, beside, path);
  } catch (...) {
    (void)io.unlink(beside);
    throw;
  }
  sync_directory(io, path.has_parent_path() ? path.parent_path() : ".");
}

void write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  write_whole_file(posix_io(), path, bytes);
}

std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix) {
  std::filesystem::path aside = path;
  aside += "." + suffix;
  for (int number = 2; path_exists(io, aside); ++number) {
    aside = path;
    aside += fmt::format(".{}.{}", suffix, number);
  }
  try {
    create_file(io, aside, read_plain_file(path, INT64_MAX - 1, ExitCode::kStorage));
    // The caller cuts the original next: the name of the copy must be on the disk before.
    sync_directory(io, path.has_parent_path() ? path.parent_path() : ".");
  } catch (...) {
    // A full disk would else get fuller with every start.
    (void)io.unlink(aside);
    throw;
  }
  return aside.filename().string();
}

}  // namespace ripstop
