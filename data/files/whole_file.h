// Whole files in one call: small ones, such as configs, manifests and results.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "data/files/io.h"

namespace ripstop {

/// Reads all of a file that a user gave; follows links, and reads pipes and files below /proc. Throws
/// Error(`refusal`) if it is missing, unreadable or longer than `most_bytes`.
std::string read_whole_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

/// Reads like the function above a file with a name of its own in a directory of ripstop's: refuses what is
/// not a regular file, because the writer of a pipe may never come.
std::string read_plain_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

/// Reads all of a file that ripstop wrote. Throws Error(kStorage) as above, and if `path` is a symbolic link
/// or not a regular file.
std::string read_whole_file(Io& io, const std::filesystem::path& path, int64_t most_bytes);

/// The first line of a file of the system, such as those below /proc and /sys; "" if it cannot be read.
std::string first_line(const std::filesystem::path& path);

/// Makes the new file `path` with `bytes` and syncs it, but not its name: `sync_directory` does that. Throws
/// Error(kStorage), also if `path` exists.
void create_file(Io& io, const std::filesystem::path& path, std::string_view bytes);

/// Makes `path` a file with `bytes`, or replaces it. Writes PATH.partial, syncs it, renames it to `path` and
/// syncs the directory: a reader, also after a power loss, finds the old file or the new one, never a part.
/// One process writes. Throws Error(kStorage); if that happens before the rename, the old file stays.
void write_whole_file(Io& io, const std::filesystem::path& path, std::string_view bytes);
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

/// Copies the file to PATH.SUFFIX, or to PATH.SUFFIX.2 and so on if that exists; the copy and its name are on
/// the disk then. Returns the name without its directory. One process calls it. Throws Error(kStorage); then
/// no copy stays.
std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix);

}  // namespace ripstop
