// Short texts for any number of ranks and their hosts.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ripstop {

/// Ranks in ascending order as ranges: "0-2,5".
std::string rank_ranges(const std::vector<int64_t>& ranks);

/// Ranks with the word in front: "rank 3" or "ranks 0-2,5".
std::string ranks_text(const std::vector<int64_t>& ranks);

/// Ranks grouped by host: "ranks 0-3 (n1), rank 9 (n3)", for at most eight hosts; of the other ranks only the
/// number is given. `host_of` is indexed by rank.
std::string ranks_and_hosts(const std::vector<int64_t>& ranks, const std::vector<std::string>& host_of);

}  // namespace ripstop
