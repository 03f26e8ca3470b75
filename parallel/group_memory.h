// GroupMemory: the device memory that collectives send from and receive into.
#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// One block of memory for the collectives of some groups, registered with their back ends, so that these
/// need no staging buffers. `take` hands out parts of the block one after another; they live as long as the
/// block.
class GroupMemory {
 public:
  /// Allocates the bytes of each category in `use` and registers them. Collective over each group, with equal
  /// sizes. The groups move tensors on `device`, have the same members, and must outlive this. Throws
  /// Error(kResources) if the device has too little memory.
  GroupMemory(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
              std::initializer_list<Communicator*> groups);

  /// Returns the next part, aligned to 256 bytes. Throws Error(kBug) if its size is not a multiple of 256
  /// bytes, or is more than the category has left.
  Tensor take(MemoryCategory category, DType dtype, const Shape& shape);

  /// Throws Error(kBug) if bytes of a category are left after the last take(), which the run would lose.
  void check_all_taken() const;

 private:
  MemoryUse left_;
  int64_t taken_bytes_ = 0;
  Buffer memory_;
  std::vector<std::unique_ptr<Registration>> registrations_;  ///< last: they end before the memory
};

}  // namespace ripstop
