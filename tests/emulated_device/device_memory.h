// Memory of the emulated GPU: a region of this process that the host cannot touch while no work runs.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace ripstop::emulated {

/// While one lives, the memory of the device can be accessed. Made around work; the caller holds the
/// device's lock.
class OpenMemory {
 public:
  OpenMemory();
  ~OpenMemory();
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
};

/// The kind of an address.
struct MemoryFacts {
  enum class Kind { kPageable, kPinned, kDevice } kind = Kind::kPageable;
  int device = 0;
  const std::byte* begin = nullptr;  ///< of its block; null if pageable
  int64_t bytes = 0;                 ///< of its block
  bool in_stream_order = false;      ///< from cudaMallocAsync
};
MemoryFacts look_up(const void* data);

/// Whether [data, data + bytes) lies inside one block of device or pinned memory.
bool within_block(const MemoryFacts& facts, const void* data, int64_t bytes);

/// Allocates device memory filled with NaN. Null if there is too little. `live`: work may use it at once;
/// else after `begin_life`, as in stream order.
void* allocate_device(int device, int64_t bytes, bool live = true);
void begin_life(void* data);
/// Frees a block of device memory at once, whatever still uses it. Its addresses are never given again, so
/// later use is noticed. Refuses if something was written beside the block. False if no block begins at
/// `data`.
bool free_device(void* data);

/// Page-locked memory of the host; null if there is too little.
void* allocate_pinned(int device, int64_t bytes);
bool free_pinned(void* data);

/// Bytes of the device, and how many of them are free. The total is $RIPSTOP_EMULATED_MEMORY, in MiB.
int64_t device_bytes();
int64_t free_device_bytes(int device);

}  // namespace ripstop::emulated
