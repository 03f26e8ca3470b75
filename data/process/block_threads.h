#pragma once
#include <cstdint>

#include "model/core/function_ref.h"

namespace ripstop {

/// Number of threads that read, convert, hash and write the blocks of a file. More threads than cores help,
/// because mostly one waits for a read and one for a write.
inline constexpr int64_t kBlockThreads = 4;

/// Calls body(thread, number) for every number below `count` on up to `threads` new threads, or on the
/// caller's if none can be started. `thread` is the index of the thread that runs `body`, so that each can
/// use its own memory. While it waits, the caller's thread calls watch(done) ten times a second, and once at
/// the end, with the number of calls that have ended; never if `count` is 0.
///
/// If `body` or `watch` throws, starts no more calls, waits for the calls under way and throws the exception.
/// Of several failed calls of `body`, throws the exception of the lowest number, whatever the speed of the
/// threads. `body` must call neither MPI nor HDF5.
void share_blocks(int64_t count, int64_t threads, FunctionRef<void(int64_t thread, int64_t number)> body,
                  FunctionRef<void(int64_t done)> watch);

}  // namespace ripstop
