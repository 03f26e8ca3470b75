// Several threads for the blocks of a file: while one waits for the device, another computes.
#pragma once
#include <cstdint>

#include "model/core/function_ref.h"

namespace ripstop {

/// Threads that read, convert, hash and write a file's blocks. More of them than cores: most of the time one
/// of them waits for the device that is read, and one for the device that is written.
inline constexpr int64_t kBlockThreads = 4;

/// Calls `body(thread, number)` for every number from 0 to `count` - 1, on up to `threads` threads at once,
/// each of which takes the next number when it is free. `thread` is below `threads` and belongs to one
/// thread, so that each can have memory of its own. Returns when all have ended. Meanwhile `watch(done)` is
/// called on the caller's thread with how many calls have ended, a few times a second and at the end.
///
/// If a body or `watch` throws, no more numbers are begun, and when those under way have ended the same is
/// thrown here: of several bodies the error of the lowest number, which does not depend on their speed.
/// `body` must call neither MPI nor HDF5.
void share_blocks(int64_t count, int64_t threads, FunctionRef<void(int64_t thread, int64_t number)> body,
                  FunctionRef<void(int64_t done)> watch);

}  // namespace ripstop
