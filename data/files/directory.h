#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// The parent of `path` by its text alone; "." for a plain name.
inline std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}
/// `path` without a slash at its end.
inline std::filesystem::path without_slash(const std::filesystem::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

/// Makes the names in `directory` survive a power loss: fsync of a file saves its bytes, but not its name.
/// Does nothing if the file system cannot sync directories. Throws Error(kStorage).
void sync_directory(Io& io, const std::filesystem::path& directory);

/// Makes `directory`, in an existing parent, unless the name exists. Throws Error(kStorage).
void make_directory(Io& io, const std::filesystem::path& directory);

/// Renames `from` to `to`. Replaces `to` if it is a file or an empty directory. Throws Error(kStorage).
void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether `path` exists, even as a link to nothing. Throws Error(kStorage) if the system cannot tell.
bool path_exists(Io& io, const std::filesystem::path& path);

/// Whether `path` is a directory or a link to one. Throws Error(kStorage) if the system cannot tell.
bool directory_exists(Io& io, const std::filesystem::path& path);

/// Whether `path` is a regular file or a link to one; false if the file system reports an error.
inline bool is_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

/// Entries sorted by name; empty if `directory` does not exist. Follows a link. Throws Error(kStorage).
std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory);

/// "it is a link to X, which is not there" if `path` is a link to nothing, else "". Throws nothing.
std::string hint_for_link(const std::filesystem::path& path);

/// The first directory by name, one to three levels below `directory`, that holds `name`; empty if none is
/// found. Skips folders called blobs. Looks at fewer than 2,000 entries. Throws nothing.
std::filesystem::path find_below(const std::filesystem::path& directory, std::string_view name);

/// Whether the file has a second name, as after `cp -al`, which shows the same bytes; false if unknown.
bool has_hard_links(const std::filesystem::path& file);

/// Seconds since the file's last change; negative if its time stamp is in the future; nullopt if unknown.
std::optional<double> age_of(const std::filesystem::path& file);

/// Whether `path` may be on a network file system; true if unknown. If false, readers see a write without a
/// sync, and a sync may be slow on a busy disk.
bool may_be_shared(const std::filesystem::path& path);

/// Removes `path` with everything below it, but not the targets of links. Returns false if something may be
/// left. Throws nothing.
bool remove_tree(Io& io, const std::filesystem::path& path);

}  // namespace ripstop
