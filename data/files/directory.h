// Directories: the names in them, and whole trees.
#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// Makes the names in `directory` (new files, renames) survive a power loss: fsync of a file keeps its bytes,
/// but not its name. Throws Error(kStorage).
void sync_directory(Io& io, const std::filesystem::path& directory);
void sync_directory(const std::filesystem::path& directory);

/// Makes `directory` if it does not exist. Its parent must exist. Throws Error(kStorage).
void make_directory(Io& io, const std::filesystem::path& directory);

/// Renames `from`; replaces the file `to`, or the empty directory `to`. Throws Error(kStorage).
void rename_path(Io& io, const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether anything has the name `path`; links are not followed. Throws Error(kStorage) if the system does
/// not say.
bool path_exists(Io& io, const std::filesystem::path& path);

/// Whether `path` is a directory that can be entered, or a link to one. Throws Error(kStorage) if the system
/// does not say.
bool directory_exists(Io& io, const std::filesystem::path& path);

/// The entries by name; none if the directory does not exist. Follows a link given as `directory`. Throws
/// Error(kStorage).
std::vector<Io::Entry> list_directory(Io& io, const std::filesystem::path& directory);

/// Whether the file has another name, too, as after `cp -al`: what is written there shows in both.
bool has_hard_links(const std::filesystem::path& file);

/// How long ago the file was changed, in seconds; negative if its time is in the future, none if it is not
/// known.
std::optional<double> age_of(const std::filesystem::path& file);

/// Whether other machines may read the file system of `path`. If not, what was written is seen by all without
/// a sync, which on a busy disk would wait for everything else that is being written, such as a checkpoint.
bool may_be_shared(const std::filesystem::path& path);

/// Removes `path` with everything below it. A symbolic link is removed itself, also if it is `path`; what it
/// points to is never touched. Returns true if `path` is gone. Throws nothing.
bool remove_tree(Io& io, const std::filesystem::path& path);

}  // namespace ripstop
