// "Did you mean": the closest of the valid names.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace ripstop {

/// The candidate with the least edit distance to `name` (insertions, deletions, substitutions and swaps of
/// neighbours; letter case and '-' against '_' are free), or "" when none is near enough to be what was
/// meant. Ties go to the earlier candidate. Source: optimal string alignment, a restricted
/// Damerau-Levenshtein distance.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace ripstop
