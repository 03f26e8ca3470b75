#pragma once
#include <cstdint>

namespace ripstop {

/// A token, and the byte of the encoded text at which it ends.
struct SpannedToken {
  int32_t id = 0;
  int64_t end_byte = 0;
};

}  // namespace ripstop
