#include "parallel/rank_names.h"

#include <fmt/core.h>

#include <cstddef>
#include <utility>

namespace ripstop {

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", i == 0 ? "" : ",", ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string ranks_and_hosts(const std::vector<int64_t>& ranks, const std::vector<std::string>& host_of) {
  constexpr size_t kShown = 8;
  std::vector<std::pair<std::string, std::vector<int64_t>>> hosts;
  for (const int64_t rank : ranks) {
    const auto r = static_cast<size_t>(rank);
    const std::string& host = r < host_of.size() ? host_of[r] : "?";
    size_t h = 0;
    while (h < hosts.size() && hosts[h].first != host) ++h;
    if (h == hosts.size()) hosts.push_back({host, {}});
    hosts[h].second.push_back(rank);
  }
  std::string text;
  size_t left = ranks.size();
  for (size_t h = 0; h < hosts.size() && h < kShown; ++h) {
    text += fmt::format("{}{} ({})", h == 0 ? "" : ", ", ranks_text(hosts[h].second), hosts[h].first);
    left -= hosts[h].second.size();
  }
  if (left > 0) text += fmt::format(" and {} more", left);
  return text;
}

}  // namespace ripstop
