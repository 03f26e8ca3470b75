#pragma once
#include <cstdint>

namespace ripstop {

/// A token, and the number of bytes of the encoded text up to its end.
struct SpannedToken {
  int32_t id = 0;
  int64_t end_byte = 0;
};

}  // namespace ripstop
