// Copies between host and device, and the host's waits, in many orders of work: the contracts of
// model/device/device.h, as the CUDA back end's own code (model/device/cuda_device.cpp) keeps them.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "model/device/cuda_device.h"
#include "tests/emulated_device/scheduler.h"

namespace ripstop {
namespace {

constexpr uint64_t kSeeds = 12;

class Copies : public testing::Test {
 protected:
  const Device device_ = Device::cuda(0);
  MemoryLedger ledger_;
};

// More than all staging buffers hold. The source is another one when the call has returned.
TEST_F(Copies, LargeOnesArriveWhole) {
  constexpr size_t kCount = (size_t{26} << 20) / 4 + 5;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated::Scheduler::instance().set_seed(seed);
    const Stream stream(device_);
    const Buffer memory(device_, ledger_, MemoryCategory::kWorkspace, 4 * kCount);
    std::vector<uint32_t> numbers(kCount), found(kCount);
    std::iota(numbers.begin(), numbers.end(), seed);
    copy_bytes(stream, memory.data(), numbers.data(), memory.bytes());
    std::fill(numbers.begin(), numbers.end(), 0);
    copy_bytes(stream, found.data(), memory.data(), memory.bytes());
    stream.synchronize();
    std::iota(numbers.begin(), numbers.end(), seed);
    ASSERT_TRUE(found == numbers) << "seed " << seed;
  }
}

TEST_F(Copies, SmallOnesStayInTheirOrder) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated::Scheduler::instance().set_seed(seed);
    const Stream stream(device_);
    const Buffer memory(device_, ledger_, MemoryCategory::kWorkspace, 256);
    for (int32_t i = 0; i < 100; ++i) {
      int32_t found = -1;
      copy_bytes(stream, memory.data(), &i, sizeof i);
      copy_bytes(stream, &found, memory.data(), sizeof found);
      ASSERT_EQ(found, i) << "seed " << seed;
    }
  }
}

// Fresh memory is zero for every stream, at once.
TEST_F(Copies, FreshMemoryIsZeroed) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated::Scheduler::instance().set_seed(seed);
    const Stream stream(device_);
    for (int i = 0; i < 20; ++i) {
      const Buffer memory(device_, ledger_, MemoryCategory::kWorkspace, 512);
      const int64_t written = 7;
      int64_t found[64];
      copy_bytes(stream, memory.data(), &written, sizeof written);
      copy_bytes(stream, found, memory.data(), sizeof found);
      stream.synchronize();
      ASSERT_EQ(found[0], 7) << "seed " << seed;
      ASSERT_TRUE(std::all_of(found + 1, found + 64, [](int64_t x) { return x == 0; })) << "seed " << seed;
    }
  }
}

TEST_F(Copies, TheHostWaitsForAllWorkOfAStream) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    emulated::Scheduler::instance().set_seed(seed);
    const Stream stream(device_);
    int done = 0;
    for (int i = 0; i < 5; ++i)
      emulated::submit(native_stream(stream), "a kernel", [&done] {
        ++done;
        return true;
      });
    stream.synchronize();
    ASSERT_EQ(done, 5) << "seed " << seed;
  }
}

TEST(Notes, AreTakenOnce) {
  const Stream stream(Device::cuda(0));
  CudaStream& cuda = cuda_stream(stream);
  cuda.note("attention is slow", "10 bytes of workspace, 8 allowed");
  cuda.note("attention is slow", "12 bytes of workspace, 8 allowed");
  cuda.note("its gradient is slow", "10 bytes of workspace, 8 allowed");
  EXPECT_EQ(stream.take_notes(),
            (std::vector<std::string>{"attention is slow: 10 bytes of workspace, 8 allowed",
                                      "its gradient is slow: 10 bytes of workspace, 8 allowed"}));
  cuda.note("attention is slow", "14 bytes of workspace, 8 allowed");
  EXPECT_TRUE(stream.take_notes().empty());
}

}  // namespace
}  // namespace ripstop
