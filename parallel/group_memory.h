#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// One block of memory for collectives, registered with the back ends, which then need no staging buffers.
/// The parts that take() returns live as long as the block.
class GroupMemory {
 public:
  /// Allocates the bytes of each category in `use` as one block and registers it with each group. The groups
  /// move tensors on `device`, have the same members, and must outlive this object. Throws Error(kResources)
  /// if the device has too little memory. Collective over each group; all ranks give equal sizes.
  GroupMemory(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
              std::initializer_list<Communicator*> groups);

  /// Returns the next part of the block. Throws Error(kBug) if the part is not a multiple of 256 bytes, or is
  /// more than the category has left.
  Tensor take(MemoryCategory category, DType dtype, const Shape& shape);

  /// Throws Error(kBug) if a category has bytes left. Call it after the last take().
  void check_all_taken() const;

 private:
  MemoryUse left_;
  int64_t taken_bytes_ = 0;
  Buffer memory_;
  std::vector<std::unique_ptr<Registration>> registrations_;  ///< destroyed before the memory
};

}  // namespace ripstop
