#include "parallel/group_memory.h"

#include <utility>

namespace ripstop {
namespace {

const MemorySource* source_of(std::initializer_list<Communicator*> groups) {
  // All groups of a mesh have the same back end, so the first memory source serves all.
  for (const Communicator* group : groups)
    if (group->memory_source() != nullptr) return group->memory_source();
  return nullptr;
}

}  // namespace

GroupMemory::GroupMemory(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
                         std::initializer_list<Communicator*> groups)
    : left_(use), memory_(device, ledger, use, source_of(groups)) {
  for (Communicator* group : groups)
    // The whole block is registered in one call, because each registration costs a round of messages.
    if (auto registration = group->register_memory(memory_.data(), memory_.bytes()))
      registrations_.push_back(std::move(registration));
}

Tensor GroupMemory::take(MemoryCategory category, DType dtype, const Shape& shape) {
  const Tensor part = tensor_in(memory_, taken_bytes_, dtype, shape);
  RIPSTOP_CHECK(part.bytes() <= left_[category] && part.bytes() % kMemoryAlignment == 0,
                "{} bytes of {} for {}", part.bytes(), left_[category], to_string(category));
  left_[category] -= part.bytes();
  taken_bytes_ += part.bytes();
  return part;
}

void GroupMemory::check_all_taken() const {
  for (const MemoryCategory category : kMemoryCategories)
    RIPSTOP_CHECK(left_[category] == 0, "{} bytes for {} are not used", left_[category], to_string(category));
}

}  // namespace ripstop
