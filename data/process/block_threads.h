// Several threads for the blocks of a file: one computes while another waits for a device.
#pragma once
#include <cstdint>

#include "model/core/function_ref.h"

namespace ripstop {

/// Threads that read, convert, hash and write a file's blocks. They may be more than the cores: mostly one of
/// them waits for the device that is read, and one for the device that is written.
inline constexpr int64_t kBlockThreads = 4;

/// Calls `body(thread, number)` for every number from 0 to `count` - 1 on up to `threads` threads. A free
/// thread takes the next number. `thread`, from 0 to `threads` - 1, is the index of the calling thread, so
/// that each can have its own memory. Meanwhile calls `watch(done)` on the caller's thread a few times a
/// second and at the end, with the number of calls that have ended. Returns when all have ended.
///
/// If `body` or `watch` throws, starts no more calls, waits for those under way and throws the exception: of
/// several calls of `body` the one with the lowest number, which does not depend on their speed. `body` must
/// call neither MPI nor HDF5.
void share_blocks(int64_t count, int64_t threads, FunctionRef<void(int64_t thread, int64_t number)> body,
                  FunctionRef<void(int64_t done)> watch);

}  // namespace ripstop
