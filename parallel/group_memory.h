// GroupMemory: device memory from which collectives send and into which they receive.
#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// One block of memory for the collectives of some groups. It is registered with their back ends, which then
/// need no staging buffers. take() hands out parts of the block one after another; the parts live as long as
/// the block.
class GroupMemory {
 public:
  /// Allocates the bytes of each category in `use` as one block and registers it with each group. The groups
  /// move tensors on `device`, have the same members, and must outlive this object. Throws Error(kResources)
  /// if the device has too little memory. Collective over each group; all ranks give equal sizes.
  GroupMemory(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
              std::initializer_list<Communicator*> groups);

  /// Returns the next part of the block, aligned to 256 bytes. Throws Error(kBug) if the size of the part is
  /// not a multiple of 256 bytes, or is more than the category has left.
  Tensor take(MemoryCategory category, DType dtype, const Shape& shape);

  /// Call it after the last take(). Throws Error(kBug) if a category has bytes left, which the run would
  /// never use.
  void check_all_taken() const;

 private:
  MemoryUse left_;
  int64_t taken_bytes_ = 0;
  Buffer memory_;
  std::vector<std::unique_ptr<Registration>> registrations_;  ///< declared last: destroyed before the memory
};

}  // namespace ripstop
