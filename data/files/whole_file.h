// Small files, such as configs, manifests and results, read and written in one call.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "data/files/io.h"

namespace ripstop {

/// Reads a file of the user. Follows links; reads pipes and files below /proc, too. Throws Error(`refusal`)
/// if it is missing, unreadable or longer than `most_bytes`.
std::string read_whole_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

/// Does the same, but refuses what is not a regular file: the writer of a pipe may never come.
std::string read_plain_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

/// Reads a file that ripstop wrote. Throws Error(kStorage) if it is missing, unreadable or longer than
/// `most_bytes`, and if `path` is a symbolic link or not a regular file.
std::string read_whole_file(Io& io, const std::filesystem::path& path, int64_t most_bytes);

/// The first line of a file below /proc or /sys; "" if it cannot be read.
std::string first_line(const std::filesystem::path& path);

/// Makes the new file `path` with `bytes` and syncs it. The caller syncs its name (sync_directory). Throws
/// Error(kStorage), also if `path` exists.
void create_file(Io& io, const std::filesystem::path& path, std::string_view bytes);

/// Makes or replaces the file `path`: writes PATH.partial, syncs it, renames it to `path` and syncs the
/// directory. A reader finds the old or the new file, never a part, even after a power loss. Only one process
/// may call it for `path`. Throws Error(kStorage); the old file stays unless the rename has happened.
void write_whole_file(Io& io, const std::filesystem::path& path, std::string_view bytes);
inline void write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  write_whole_file(posix_io(), path, bytes);
}

/// Copies the file to PATH.SUFFIX, or to the first of PATH.SUFFIX.2, PATH.SUFFIX.3, ... that does not exist,
/// and syncs the copy and its name. Returns the file name of the copy. Only one process may call it for
/// `path`. Throws Error(kStorage); then no copy stays.
std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix);

}  // namespace ripstop
