// Keeps a file that is about to be cut.
#pragma once
#include <filesystem>
#include <string>

#include "data/files/io.h"

namespace ripstop {

/// Copies the file to PATH.SUFFIX, or to PATH.SUFFIX.2 and so on if that exists, and syncs the copy and its
/// name. Returns the copy's name without its directory. A copy and no rename: if the process is killed now,
/// the file is still there. One process calls it. Throws Error(kStorage); then no copy stays.
std::string copy_aside(Io& io, const std::filesystem::path& path, const std::string& suffix);
std::string copy_aside(const std::filesystem::path& path, const std::string& suffix);

}  // namespace ripstop
