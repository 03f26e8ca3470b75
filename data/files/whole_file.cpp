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
  // Minimum size of the buffer, because pipes and files below /proc have size 0.
  constexpr int64_t kLeastBlock = 4096;
  Io::Status status;
  if (io.status(file.value(), status) != 0) fail_storage(path, "look at it", errno, refusal);
  std::string text;
  size_t filled = 0;
  int tries = 0;
  for (;;) {
    // Check the bytes that have arrived: /dev/zero has size 0 but no end.
    if (static_cast<int64_t>(filled) > most_bytes)
      fail(refusal, "{}: has more than {} bytes", path.string(), most_bytes);
    if (filled == text.size())
      text.resize(static_cast<size_t>(
          std::max({std::min(status.bytes, most_bytes) + 1, 2 * static_cast<int64_t>(filled), kLeastBlock})));
    const ssize_t got = io.read(file.value(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) break;
    if (got > 0)
      filled += static_cast<size_t>(got);
    else
      wait_for_storage(path, "read", errno, tries);
  }
  text.resize(filled);
  return text;
}

namespace {

std::string read_all(const InputFile& file, int64_t most_bytes, ExitCode refusal) {
  // Check before allocating: a damaged file system may state any size.
  if (file.bytes() > most_bytes)
    fail(refusal, "{}: has more than {} bytes", file.path().string(), most_bytes);
  return file.text_at(0, file.bytes());
}

}  // namespace

std::string read_plain_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal) {
  return read_all(InputFile(path, refusal), most_bytes, refusal);
}

std::string read_whole_file(Io& io, const std::filesystem::path& path, int64_t most_bytes) {
  return read_all(InputFile(io, path), most_bytes, ExitCode::kStorage);
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

void replace_file(Io& io, const std::filesystem::path& path, FunctionRef<void(OutputFile&)> write) {
  std::filesystem::path beside = path;
  beside += ".partial";
  (void)io.unlink(beside);  // a killed process may have left the file
  try {
    OutputFile file(io, beside);
    write(file);
    file.sync();  // before the rename: otherwise a power loss may leave an empty file
    file.close();
    rename_path(io, beside, path);
  } catch (...) {
    (void)io.unlink(beside);
    throw;
  }
  sync_directory(io, folder_of(path));
}

void write_whole_file(Io& io, const std::filesystem::path& path, std::string_view bytes) {
  replace_file(io, path, [&](OutputFile& file) { file.write_at(0, bytes.data(), std::ssize(bytes)); });
}

std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix) {
  std::filesystem::path aside = path;
  aside += "." + suffix;
  for (int number = 2; path_exists(io, aside); ++number) {
    aside = path;
    aside += fmt::format(".{}.{}", suffix, number);
  }
  try {
    const InputFile from(path, ExitCode::kStorage);
    OutputFile copy(io, aside);
    copy_begin(from, copy, 0, from.bytes());
    copy.sync();
    copy.close();
    // The copy must survive a power loss: the caller cuts the original next.
    sync_directory(io, folder_of(path));
  } catch (...) {
    // Removes the failed copy: otherwise each new try would add a copy and fill the disk.
    (void)io.unlink(aside);
    throw;
  }
  return aside.filename().string();
}

}  // namespace ripstop
