// Keeps a file that is about to be cut.
#pragma once
#include <filesystem>
#include <string>

namespace ripstop {

/// Copies the file to PATH.SUFFIX, or to PATH.SUFFIX.2 and so on if that exists, and syncs the copy. Returns
/// the copy's name without its directory. A copy and no rename: if the process is killed now, the file is
/// still there. One process calls it. Throws Error(kStorage).
std::string copy_aside(const std::filesystem::path& path, const std::string& suffix);

}  // namespace ripstop
