// Ranks and their hosts in messages, short enough for a thousand of them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ripstop {

/// "0-2,5", of ranks in rising order.
std::string rank_ranges(const std::vector<int64_t>& ranks);

/// "rank 3", "ranks 0-2,5".
std::string ranks_text(const std::vector<int64_t>& ranks);

/// The ranks of each host together: "ranks 0-3 (n1), rank 9 (n3)". At most eight hosts; the rest are counted.
/// `host_of` by rank.
std::string ranks_and_hosts(const std::vector<int64_t>& ranks, const std::vector<std::string>& host_of);

}  // namespace ripstop
