#pragma once
#include <cstdint>

namespace ripstop {

/// `end_byte`: byte of the encoded text at which the token ends.
struct SpannedToken {
  int32_t id = 0;
  int64_t end_byte = 0;
};

}  // namespace ripstop
