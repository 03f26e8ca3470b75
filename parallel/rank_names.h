#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ripstop {

/// Returns a text like "rank 3" or "ranks 0-2,5" for ranks in ascending order.
std::string ranks_text(const std::vector<int64_t>& ranks);

/// Returns a text like "ranks 0-3 (n1), rank 9 (n3)": at most eight hosts, then the number of other ranks.
/// `host_of` is indexed by rank.
std::string ranks_and_hosts(const std::vector<int64_t>& ranks, const std::vector<std::string>& host_of);

}  // namespace ripstop
