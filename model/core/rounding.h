#pragma once
#include <cstdint>
#include <vector>

namespace ripstop {

/// The smallest q with q * step >= count. count >= 0, step >= 1.
constexpr int64_t divide_up(int64_t count, int64_t step) {
  return (count + step - 1) / step;
}

constexpr int64_t round_up(int64_t count, int64_t step) {
  return divide_up(count, step) * step;
}

/// The divisors of n > 0, in ascending order.
inline std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) found.push_back(d);
  return found;
}

}  // namespace ripstop
