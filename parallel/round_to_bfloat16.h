// Gradients that travel in fewer bits, without memory for a second copy.
#pragma once
#include <cstdint>

namespace ripstop {

/// Turns `count` float32 numbers into as many bfloat16 numbers, rounded to nearest even, at the beginning of
/// the same host memory.
void round_in_place(void* numbers, int64_t count);

}  // namespace ripstop
