// Runs one CUDA grid on the host. Blocks run one after another. Each thread of a block has its own stack and
// runs until it must wait for other threads; the order of threads can be chosen. Barriers and shuffles are
// real: a thread continues when all others have arrived. Throws Error(kBug) if threads of a warp or block
// wait at different places, or if a thread ends while others wait for it: on a GPU both are undefined.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <vector>

#include "model/core/function_ref.h"

// The library hides all symbols but these.
#pragma GCC visibility push(default)
namespace emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// The thread and block that run now. Only kernels read it.
struct Now {
  Index thread, block;
  Extent threads, blocks;
};
extern Now now;

/// A line of a source file.
struct Place {
  const char* file = "";
  unsigned line = 0;
  bool operator==(const Place& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};
inline Place here(const std::source_location& at = std::source_location::current()) {
  return {at.file_name(), at.line()};
}

// Called by kernels, through the headers in cuda/.
void wait_for_block(Place place);
void wait_for_warp(Place place);
/// Returns `bits` of the lane whose number differs in the bits of `mask`. Throws unless `lanes` has all 32.
uint64_t exchange(unsigned lanes, uint64_t bits, int mask, Place place);

/// Runs `body` once for each thread of each block. `threads` has one dim and whole warps. Fills shared memory
/// with NaN before the first block.
void run(Extent blocks, Extent threads, ripstop::FunctionRef<void()> body);

/// Called for every launch and every fill of a kernel's host code. The arguments are captured by value:
/// `work` may run later. Returns a cudaError_t.
using Launch = int (*)(void* stream, std::function<void()> work);
int launch(void* stream, std::function<void()> work);
/// From now on `how` is called for them. Null, as at the start: work runs at once.
void set_launch(Launch how);

/// The order in which blocks run, and threads that do not wait.
enum class Order { kForward, kReversed, kShuffled };
void set_order(Order order);

/// All barriers (without shuffles) that threads have reached since the program began.
std::vector<Place> barriers();
/// From now on threads pass this barrier without waiting, as if it were not there. Place{}: no barrier.
void remove_barrier(Place place);

}  // namespace emulation
#pragma GCC visibility pop
