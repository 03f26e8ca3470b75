// "Did you mean": finds the closest of the valid names.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ripstop {

/// Returns the candidate with the least edit distance to `name`, the first one if several have it; "" if none
/// is near enough to be a slip. Insertions, deletions, substitutions and swaps of neighbours count 1. Letter
/// case, and '-' instead of '_', count 0. Source: optimal string alignment, a restricted Damerau-Levenshtein
/// distance.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

/// The path beside `path` whose name is nearest; "" if none is near, or nothing beside it can be read. To be
/// called if nothing has the name `path`.
std::string nearest_path(const std::filesystem::path& path);

}  // namespace ripstop
