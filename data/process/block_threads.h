// Calls a function for each block of a file on several threads: one computes while another waits for
// storage.
#pragma once
#include <cstdint>

#include "model/core/function_ref.h"

namespace ripstop {

/// Number of threads that read, convert, hash and write the blocks of a file. It may exceed the number of
/// cores: mostly one thread waits for the device that is read, and one for the device that is written.
inline constexpr int64_t kBlockThreads = 4;

/// Calls body(thread, number) for every number from 0 to `count` - 1 on up to `threads` threads. A free
/// thread takes the next number. `thread`, from 0 to `threads` - 1, is the index of the thread that makes the
/// call, so that each thread can have its own memory. Meanwhile calls watch(done) on the caller's thread a
/// few times a second and once at the end; `done` is the number of calls that have ended. Returns when all
/// calls have ended.
///
/// If `body` or `watch` throws, starts no more calls, waits for those under way and throws the exception. If
/// several calls of `body` throw, throws the exception of the call with the lowest number, which does not
/// depend on the speed of the threads. `body` must call neither MPI nor HDF5.
void share_blocks(int64_t count, int64_t threads, FunctionRef<void(int64_t thread, int64_t number)> body,
                  FunctionRef<void(int64_t done)> watch);

}  // namespace ripstop
