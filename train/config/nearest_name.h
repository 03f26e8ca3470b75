// "Did you mean": finds the closest of the valid names.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ripstop {

/// Returns the candidate with the least edit distance to `name`, the first one if several have it; "" if none
/// is near enough to be a slip. Insertions, deletions, substitutions and swaps of neighbours count 1. Letter
/// case, and '-' instead of '_', count 0. Source: optimal string alignment, a restricted Damerau-Levenshtein
/// distance.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// The names in `directory`, sorted, 10,000 of them at most; none if it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& directory);

/// The hint for a path that is not there: "did you mean data.directory=data/xsum?" for `option`
/// "data.directory=", with the nearest name beside it, as one word of a shell. If `inside` is not empty, the
/// nearest that holds this file. For a link that leads nowhere: "it is a link to X, which is not there". ""
/// if `path` is there, if the system does not say, if no name is near, and below /proc and /dev/fd. Throws
/// nothing of the file system.
std::string hint_for_absent(const std::filesystem::path& path, std::string_view option,
                            std::string_view inside = "");

}  // namespace ripstop
