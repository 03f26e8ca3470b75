#include "data/files/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "data/files/file.h"

namespace ripstop {

void sync_directory(Io& io, const std::filesystem::path& directory) {
  const Descriptor file(io, io.open(directory, O_RDONLY | O_DIRECTORY));
  if (file.value() < 0) fail_storage(directory, "open", errno);
  while (io.fsync(file.value()) != 0) {
    // EINVAL: this file system cannot sync a directory.
    if (errno == EINVAL) return;
    if (errno != EINTR) fail_storage(directory, "sync", errno);
  }
}

void make_directory(Io& io, const std::filesystem::path& directory) {
  // EEXIST: another rank, or an earlier start, may have made the directory.
  if (io.mkdir(directory) != 0 && errno != EEXIST) fail_storage(directory, "make the directory", errno);
}

void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to) {
  if (io.rename(from, to) != 0)
    fail_storage(from, fmt::format("rename to {}", to.filename().string()), errno);
}

bool path_exists(Io& io, const std::filesystem::path& path) {
  Io::Status status;
  if (io.status(path, status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail_storage(path, "look at it", errno);
  return false;
}

bool directory_exists(Io& io, const std::filesystem::path& path) {
  Io::Status status;
  // Io::status does not follow links, but the system follows `path` to its target if "/." comes after it.
  if (io.status(path / ".", status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail_storage(path, "look at it", errno);
  return false;
}

std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory) {
  std::vector<Io::Entry> entries;
  if (io.list(directory, entries) != 0 && errno != ENOENT) fail_storage(directory, "list", errno);
  std::sort(entries.begin(), entries.end(),
            [](const Io::Entry& a, const Io::Entry& b) { return a.name < b.name; });
  return entries;
}

std::string hint_for_link(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  if (target.empty() || std::filesystem::exists(path, error)) return "";
  return fmt::format("it is a link to {}, which is not there", target.string());
}

std::filesystem::path find_below(const std::filesystem::path& directory, std::string_view name) {
  using Walk = std::filesystem::recursive_directory_iterator;
  constexpr int kDeepest = 3, kMostEntries = 2000;
  std::filesystem::path first;
  std::error_code error;
  int seen = 0;
  for (Walk at(directory, std::filesystem::directory_options::skip_permission_denied, error), end;
       !error && at != end && ++seen < kMostEntries; at.increment(error)) {
    // Skip "blobs", whose files have hashes as names (the cache of Hugging Face's hub).
    if (at.depth() == kDeepest || at->path().filename() == "blobs") at.disable_recursion_pending();
    const std::filesystem::path found = at->path().parent_path();
    if (at.depth() > 0 && at->path().filename() == name && (first.empty() || found < first)) first = found;
  }
  return first;
}

bool has_hard_links(const std::filesystem::path& file) {
  std::error_code error;
  const auto count = std::filesystem::hard_link_count(file, error);
  return !error && count > 1;
}

std::optional<double> age_of(const std::filesystem::path& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file, error);
  if (error) return std::nullopt;
  return std::chrono::duration<double>(std::filesystem::file_time_type::clock::now() - time).count();
}

bool may_be_shared(const std::filesystem::path& path) {
  constexpr std::array<int64_t, 6> kLocal = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                             F2FS_SUPER_MAGIC, TMPFS_MAGIC,     0x2fc12fc1 /* ZFS */};
  struct statfs facts {};
  if (::statfs(path.c_str(), &facts) != 0) return true;
  return std::find(kLocal.begin(), kLocal.end(), static_cast<int64_t>(facts.f_type)) == kLocal.end();
}

bool remove_tree(Io& io, const std::filesystem::path& path) {
  Io::Status status;
  if (io.status(path, status) != 0) return errno == ENOENT;
  // Io::list would follow a link, whose target may be a user's archive.
  if (!status.is_directory) return io.unlink(path) == 0;
  std::vector<Io::Entry> entries;
  if (io.list(path, entries) != 0) return errno == ENOENT;
  bool is_empty = true;
  for (const Io::Entry& entry : entries) is_empty &= remove_tree(io, path / entry.name);
  return is_empty && io.rmdir(path) == 0;
}

}  // namespace ripstop
