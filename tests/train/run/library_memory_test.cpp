#include "train/run/library_memory.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(LibraryMemoryTest, ARunFitsBesideWhatLibrariesMayStillTake) {
  // 80 GiB; libraries have taken 1 GiB of their reserve of 3 GiB.
  GpuRoom room{
      .free_before = 80 * kGiB, .free_now = 79 * kGiB, .run_bytes = 77 * kGiB, .kept_bytes = 3 * kGiB};
  EXPECT_EQ(lack_of_room(room), std::nullopt);
  room.run_bytes += 1;
  EXPECT_EQ(lack_of_room(room),
            "79.0 GiB are free after CUDA's libraries (and other programs) took 1.0 GiB; the run needs 77.0 "
            "GiB, and 2.0 GiB stay for kernels that are loaded later");
}

TEST(LibraryMemoryTest, LibrariesThatTookMoreThanTheirBoundLeaveLess) {
  const GpuRoom room{
      .free_before = 80 * kGiB, .free_now = 75 * kGiB, .run_bytes = 75 * kGiB, .kept_bytes = 3 * kGiB};
  EXPECT_EQ(lack_of_room(room), std::nullopt);
  EXPECT_NE(
      lack_of_room(
          {.free_before = 80 * kGiB, .free_now = 75 * kGiB, .run_bytes = 76 * kGiB, .kept_bytes = 3 * kGiB}),
      std::nullopt);
}

TEST(LibraryMemoryTest, MoreThanTheBoundIsTold) {
  GpuRoom room{
      .free_before = 80 * kGiB, .free_now = 7 * kGiB, .run_bytes = 70 * kGiB, .kept_bytes = 3 * kGiB};
  EXPECT_EQ(libraries_beyond_bound(room), std::nullopt);
  room.free_now -= kGiB;
  EXPECT_EQ(libraries_beyond_bound(room),
            "CUDA's libraries (and other programs) took 4.0 GiB of the GPU beside the plan, which keeps 3.0 "
            "GiB for them: a larger micro-batch may run out of memory");
}

TEST(LibraryMemoryTest, OnACpuNothingIsMeasured) {
  const LibraryMemory memory(Device::cpu());
  EXPECT_NO_THROW(memory.check_room(INT64_MAX));
  EXPECT_EQ(memory.beyond_bound(0), std::nullopt);
}

}  // namespace
}  // namespace ripstop
