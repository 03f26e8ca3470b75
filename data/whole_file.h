// Small files that are there whole or not at all.
#pragma once
#include <filesystem>
#include <string_view>

namespace ripstop {

/// Makes `path` a file with the bytes `text`: written beside it, made to last, then renamed over what was
/// there. Whoever reads `path`, also after a power loss, finds the old file or the new one. Throws
/// Error(kStorage); the old file then stays.
void write_whole_file(const std::filesystem::path& path, std::string_view text);

}  // namespace ripstop
