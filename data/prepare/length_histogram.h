#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "data/prepare/prepare.h"

namespace ripstop {

/// Statistics of lengths. Quantiles count a length above kExact as kExact; mean and maximum are exact.
class LengthHistogram {
 public:
  static constexpr int64_t kExact = 65536;

  void add(int64_t length) {
    if (counts_.empty()) counts_.resize(kExact + 1);
    ++counts_[static_cast<size_t>(std::min(length, kExact))];
    ++count_;
    sum_ += length;
    longest_ = std::max(longest_, length);
  }
  LengthStatistics statistics() const {
    if (count_ == 0) return {};
    return {at(0.5), at(0.9), at(0.99), longest_, static_cast<double>(sum_) / static_cast<double>(count_)};
  }

 private:
  /// The smallest length L such that at least the share `share` of the lengths is at most L.
  int64_t at(double share) const {
    const auto needed =
        std::max<int64_t>(1, static_cast<int64_t>(share * static_cast<double>(count_) + 0.999999));
    int64_t seen = 0;
    for (int64_t length = 0; length <= kExact; ++length) {
      seen += counts_[static_cast<size_t>(length)];
      if (seen >= needed) return length;
    }
    return longest_;
  }
  std::vector<int64_t> counts_;
  int64_t count_ = 0, sum_ = 0, longest_ = 0;
};

}  // namespace ripstop
