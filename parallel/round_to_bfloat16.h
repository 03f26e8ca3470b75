#pragma once
#include <cstdint>

namespace ripstop {

/// Rounds `count` float32 numbers in host memory to nearest even bfloat16, in place: results fill the first
/// half.
void round_to_bfloat16(void* numbers, int64_t count);

}  // namespace ripstop
