// Small files, such as configs, manifests and results, in one call.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "data/files/io.h"
#include "model/core/function_ref.h"

namespace ripstop {

class OutputFile;

/// Reads a user's file. Follows links; also reads pipes and files below /proc. Throws Error(`refusal`) if the
/// file is missing, cannot be opened or is longer than `most_bytes`; Error(kStorage) if a read fails.
std::string read_whole_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

/// Same as read_whole_file(path, ...), but only for regular files, because a pipe could block forever.
std::string read_plain_file(const std::filesystem::path& path, int64_t most_bytes, ExitCode refusal);

/// Reads a file that ripstop wrote. Throws Error(kStorage) if the file is missing, unreadable or longer than
/// `most_bytes`, or if `path` is a symbolic link or not a regular file.
std::string read_whole_file(Io& io, const std::filesystem::path& path, int64_t most_bytes);

/// The first line of a file below /proc or /sys; "" if the file cannot be read.
std::string first_line(const std::filesystem::path& path);

/// Makes and syncs a new file. The caller must sync its name (sync_directory). Throws Error(kStorage), also
/// if `path` exists.
void create_file(Io& io, const std::filesystem::path& path, std::string_view bytes);

/// Makes or replaces a file: lets `write` fill PATH.partial, syncs it, renames it to `path` and syncs the
/// directory. A reader finds the old or the new file, never a part, even after a power loss. Only one process
/// at a time may call it for a `path`. Throws Error(kStorage), or as `write`; then the old file stays unless
/// the rename has already happened.
void replace_file(Io& io, const std::filesystem::path& path, FunctionRef<void(OutputFile&)> write);

/// Same as replace_file(), with these bytes.
void write_whole_file(Io& io, const std::filesystem::path& path, std::string_view bytes);
inline void write_whole_file(const std::filesystem::path& path, std::string_view bytes) {
  write_whole_file(posix_io(), path, bytes);
}

/// Copies `path` to the first of PATH.SUFFIX, PATH.SUFFIX.2, PATH.SUFFIX.3, ... that does not exist, and
/// syncs the copy and its name. Returns the copy's file name. Only one process at a time may call it for
/// a `path`. Throws Error(kStorage); then no copy stays.
std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix);

}  // namespace ripstop
