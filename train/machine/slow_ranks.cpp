#include "train/machine/slow_ranks.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace ripstop {

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<double> relative_to_median(std::span<const double> rates) {
  std::vector<double> known;
  for (const double rate : rates)
    if (rate > 0) known.push_back(rate);
  std::vector<double> shares(rates.size(), 1.0);
  if (known.empty()) return shares;
  const double usual = median(known);
  for (size_t i = 0; i < rates.size(); ++i)
    if (rates[i] > 0) shares[i] = rates[i] / usual;
  return shares;
}

std::string exclude_option(std::span<const std::string> hosts) {
  std::vector<std::string> names;
  for (const std::string& host : hosts) {
    // Slurm knows its nodes by their short names.
    const std::string name = host.substr(0, host.find('.'));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names.empty() ? "" : fmt::format("--exclude={}", fmt::join(names, ","));
}

}  // namespace ripstop
