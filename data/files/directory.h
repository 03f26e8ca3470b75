// Operations on directories and on the names in them, and on whole directory trees.
#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// Makes the names in `directory` (of new or renamed files) survive a power loss: fsync of a file makes its
/// bytes durable, but not its name. Throws Error(kStorage).
void sync_directory(Io& io, const std::filesystem::path& directory);

/// Makes `directory` if it does not exist. Its parent must exist. Throws Error(kStorage).
void make_directory(Io& io, const std::filesystem::path& directory);

/// Renames `from`. Replaces `to` if it is a file or an empty directory. Throws Error(kStorage).
void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether `path` exists; a symbolic link counts, whatever its target. Throws Error(kStorage) if the system
/// cannot tell.
bool path_exists(Io& io, const std::filesystem::path& path);

/// Whether `path` is a directory, or a link to one. Throws Error(kStorage) if the system cannot tell, as for
/// a directory that this user may not enter.
bool directory_exists(Io& io, const std::filesystem::path& path);

/// The entries of `directory`, sorted by name; empty if `directory` does not exist. If `directory` is a link,
/// follows it. Throws Error(kStorage).
std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory);

/// Whether the file has a second name (hard link), as after `cp -al`. A write through one name shows under
/// both.
bool has_hard_links(const std::filesystem::path& file);

/// Seconds since the last change of the file. Negative if its time stamp lies in the future; nullopt if it
/// has no time stamp.
std::optional<double> age_of(const std::filesystem::path& file);

/// Whether other machines may read the file system of `path`. If not, all readers see a write at once,
/// without a sync. A sync may take long, because a busy disk first writes everything else, such as a
/// checkpoint.
bool may_be_shared(const std::filesystem::path& path);

/// Removes `path` with everything below it. Removes symbolic links, but never their targets. Returns whether
/// `path` is gone. Throws nothing.
bool remove_tree(Io& io, const std::filesystem::path& path);

}  // namespace ripstop
