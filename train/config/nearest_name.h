// "Did you mean": finds the valid name that is nearest to a typing error.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Returns the first candidate with the least edit distance to `name`; "" if none is near enough to be a
/// typing error. Insertions, deletions, substitutions and swaps of neighbours count 1 (optimal string
/// alignment, a restricted Damerau-Levenshtein distance). Letter case, and '-' for '_', count 0.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// The names in `directory`, sorted, at most 10,000; empty if it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory);

/// The hint for a path that does not exist: for `option` "data.directory=" it is "did you mean
/// data.directory=data/xsum?", with the nearest name in the same directory, quoted for a shell. Unless
/// `inside` is empty, only directories that hold a file of this name count. For a dangling link: "it is a
/// link to X, which is not there". "" if `path` exists or cannot be looked up, if no name is near, and below
/// /proc and /dev/fd. Throws no error of the file system.
std::string hint_for_absent(const std::filesystem::path& path, std::string_view option,
                            std::string_view inside = "");

}  // namespace ripstop
