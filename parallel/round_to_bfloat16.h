#pragma once
#include <cstdint>

namespace ripstop {

/// Rounds `count` float32 numbers in host memory to the nearest bfloat16 (ties to even), in place. The
/// results fill the first half of the memory.
void round_to_bfloat16(void* numbers, int64_t count);

/// The reverse: turns `count` bfloat16 numbers at the beginning of the memory into float32, in place.
void widen_bfloat16(void* numbers, int64_t count);

}  // namespace ripstop
