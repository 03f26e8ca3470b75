// Operations on directories, names and whole trees.
#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// Makes the names in `directory` (new files, renames) survive a power loss: fsync of a file keeps its bytes,
/// but not its name. Throws Error(kStorage).
void sync_directory(Io& io, const std::filesystem::path& directory);

/// Makes `directory` if it does not exist. Its parent must exist. Throws Error(kStorage).
void make_directory(Io& io, const std::filesystem::path& directory);

/// Renames `from`. Replaces `to` if it is a file or an empty directory. Throws Error(kStorage).
void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether `path` exists. Does not follow a link. Throws Error(kStorage) if the system cannot tell.
bool path_exists(Io& io, const std::filesystem::path& path);

/// Whether `path` is a directory, or a link to one. Throws Error(kStorage) if the system cannot tell, also if
/// the directory cannot be entered.
bool directory_exists(Io& io, const std::filesystem::path& path);

/// The entries, sorted by name; empty if the directory does not exist. Follows a link given as `directory`.
/// Throws Error(kStorage).
std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory);

/// Whether the file has a second name, as after `cp -al`. Both names show every write.
bool has_hard_links(const std::filesystem::path& file);

/// Seconds since the last change of the file; negative if its time stamp lies in the future, nullopt if it
/// has none.
std::optional<double> age_of(const std::filesystem::path& file);

/// Whether other machines may read the file system of `path`. If not, every reader sees a write without a
/// sync. A sync may take long: a busy disk first writes everything else, such as a checkpoint.
bool may_be_shared(const std::filesystem::path& path);

/// Removes `path` with everything below it. Removes a symbolic link, but never touches its target. Returns
/// whether `path` is gone. Throws nothing.
bool remove_tree(Io& io, const std::filesystem::path& path);

}  // namespace ripstop
