// Rounding of gradients before they are sent in bfloat16, without memory for a copy.
#pragma once
#include <cstdint>

namespace ripstop {

/// Rounds `count` float32 numbers in host memory to nearest even bfloat16, in place: the results fill the
/// first half of the memory.
void round_to_bfloat16(void* numbers, int64_t count);

}  // namespace ripstop
