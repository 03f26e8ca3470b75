// GroupMemory: device memory that collectives begin and end in.
#pragma once
#include <initializer_list>
#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace ripstop {

/// One block of memory from which the collectives of some groups send and into which they receive. The
/// groups' back ends are told of it, so that they can do without copies of their own. Its parts are handed
/// out one after another and stay as long as it.
class GroupMemory {
 public:
  /// So many bytes of each category. All ranks of a group make theirs at the same point with equal sizes; the
  /// groups move tensors on `device`, give each rank the same other ranks, and outlive this. Throws
  /// Error(kResources) where the device has too little.
  GroupMemory(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
              std::initializer_list<Communicator*> groups);

  /// The next part, aligned to 256 bytes and of a multiple of 256 bytes. Throws Error(kBug) where that is
  /// more than is left for the category.
  Tensor take(MemoryCategory category, DType dtype, const Shape& shape);

  /// To be called when every part has been taken. Throws Error(kBug) where something is left of a category:
  /// more was asked for than is used.
  void check_all_taken() const;

 private:
  MemoryUse left_;
  int64_t taken_bytes_ = 0;
  Buffer memory_;
  std::vector<std::unique_ptr<Registration>> registrations_;  // end before the memory does
};

}  // namespace ripstop
