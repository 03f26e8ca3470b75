// Tests of GroupMemory: the bytes charged for each category, and the places of its parts.
#include "parallel/group_memory.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

MemoryUse use(int64_t weights, int64_t gradients) {
  MemoryUse bytes;
  bytes[MemoryCategory::kWeights] = weights;
  bytes[MemoryCategory::kGradients] = gradients;
  return bytes;
}

TEST(GroupMemory, IsChargedByCategoryAsLongAsItLives) {
  const auto group = make_self_communicator("fsdp");
  for (const Device& device : {Device::cpu(), Device::meta(DeviceKind::kCuda)}) {
    MemoryLedger ledger;
    {
      const GroupMemory memory(device, ledger, use(1024, 512), {group.get(), group.get()});
      EXPECT_EQ(ledger.now(), use(1024, 512));
    }
    EXPECT_EQ(ledger.now(), use(0, 0));
    EXPECT_EQ(ledger.peak(), use(1024, 512));
  }
}

TEST(GroupMemory, PartsLieOneAfterAnother) {
  const auto group = make_self_communicator("fsdp");
  MemoryLedger ledger;
  GroupMemory memory(Device::cpu(), ledger, use(1024, 512), {group.get()});
  const Tensor first = memory.take(MemoryCategory::kWeights, DType::kBFloat16, {256});
  const Tensor second = memory.take(MemoryCategory::kGradients, DType::kFloat32, {2, 64});
  const Tensor third = memory.take(MemoryCategory::kWeights, DType::kFloat32, {128});
  EXPECT_EQ(static_cast<std::byte*>(second.data) - static_cast<std::byte*>(first.data), 512);
  EXPECT_EQ(static_cast<std::byte*>(third.data) - static_cast<std::byte*>(second.data), 512);
  for (int i = 0; i < 128; ++i) EXPECT_EQ(third.as<float>()[i], 0);
}

TEST(GroupMemory, ACategoryHasNoMoreThanItWasGiven) {
  const auto group = make_self_communicator("fsdp");
  MemoryLedger ledger;
  GroupMemory memory(Device::cpu(), ledger, use(1024, 512), {group.get()});
  EXPECT_THROW(memory.take(MemoryCategory::kGradients, DType::kFloat32, {256}), Error);
  EXPECT_THROW(memory.take(MemoryCategory::kWeights, DType::kFloat32, {16}),
               Error);  // the next would not be aligned
  memory.take(MemoryCategory::kWeights, DType::kFloat32, {256});
  EXPECT_THROW(memory.take(MemoryCategory::kWeights, DType::kFloat32, {64}), Error);
}

// Plan and run allocate the same bytes, so no other test would find too many bytes.
TEST(GroupMemory, WhatIsLeftIsABug) {
  const auto group = make_self_communicator("fsdp");
  MemoryLedger ledger;
  GroupMemory memory(Device::meta(DeviceKind::kCuda), ledger, use(1024, 512), {group.get()});
  memory.take(MemoryCategory::kWeights, DType::kFloat32, {256});
  EXPECT_THROW(memory.check_all_taken(), Error);
  memory.take(MemoryCategory::kGradients, DType::kFloat32, {128});
  EXPECT_NO_THROW(memory.check_all_taken());
}

}  // namespace
}  // namespace ripstop
