// "Did you mean": finds the valid name that is nearest to a typing error.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/run_config.h"

namespace ripstop {

/// The first candidate with the least edit distance to `name`, by the first 64 bytes of each; "" if none is
/// near enough for a typing error. Insertions, deletions, substitutions and swaps of neighbours count 1
/// (optimal string alignment); letter case, and '-' for '_', count 0.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// Sorted names of at most 10,000 entries of `directory`; empty if the directory cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory);

/// The hint for a wrong path: the nearest name in the same directory, after `option`: "did you mean
/// data.directory=data/xsum?". `inside`: only directories that hold this file count (".": all directories);
/// if `path` is a file beside `inside`, names its directory. For a broken link: "it is a link to X, which is
/// not there". Else "": `path` exists, cannot be examined or lies below /proc or /dev/fd, or no name is near.
/// Throws no error of the file system.
std::string hint_for_absent(const std::filesystem::path& path, std::string_view option,
                            std::string_view inside = "");

/// hint_for_absent() for `directory`, which is one of data.all() and should be a data set.
std::string hint_for_absent_set(const DataSection& data, const std::string& directory);

}  // namespace ripstop
