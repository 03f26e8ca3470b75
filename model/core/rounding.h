// Integer division that rounds up.
#pragma once
#include <cstdint>

namespace ripstop {

/// The smallest q with q * step >= count. count >= 0, step >= 1.
constexpr int64_t divide_up(int64_t count, int64_t step) {
  return (count + step - 1) / step;
}

/// The smallest multiple of `step` that is at least `count`.
constexpr int64_t round_up(int64_t count, int64_t step) {
  return divide_up(count, step) * step;
}

}  // namespace ripstop
