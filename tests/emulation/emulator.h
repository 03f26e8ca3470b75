// Runs one CUDA grid on the host: every thread of a block has a stack of its own and runs until it has to
// wait for others, in an order that can be chosen; blocks run one after another. Barriers and shuffles are
// real: a thread passes when all it waits for have come. What cannot happen on a GPU without harm is an
// Error(kBug): threads of a warp or block that wait in different places, or leave while others wait for them.
#pragma once
#include <cstdint>
#include <cstring>
#include <source_location>
#include <vector>

#include "model/core/function_ref.h"

// Of a library that hides what it does not name.
#pragma GCC visibility push(default)
namespace emulation {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent {
  unsigned x = 1, y = 1, z = 1;
};

/// Who runs now; only kernels read it.
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

// What kernels call, through the headers in cuda/.
void wait_for_block(Place place);
void wait_for_warp(Place place);
/// `bits` of the lane whose number differs in the bits of `mask`. Throws unless `lanes` is all 32.
uint64_t exchange(unsigned lanes, uint64_t bits, int mask, Place place);

/// Runs `body` once for each thread of each block. `threads` has one dim, of whole warps. Shared memory is
/// filled with NaN before each block.
void run(Extent blocks, Extent threads, ripstop::FunctionRef<void()> body);

/// In which order threads run that do not wait, and blocks.
enum class Order { kForward, kReversed, kShuffled };
void set_order(Order order);

/// Barriers (not shuffles) that threads have come to since the program began.
std::vector<Place> barriers();
/// From now on threads pass this barrier without waiting, as if it were not there; Place{}: none.
void remove_barrier(Place place);

}  // namespace emulation
#pragma GCC visibility pop
