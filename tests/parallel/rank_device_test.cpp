#include "parallel/rank_device.h"
#include "tests/expect_error.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

TEST(RankDevice, RanksOfANodeTakeItsGpusInTurn) {
  EXPECT_EQ(gpu_of_local_rank(5, 4), 1);
  EXPECT_EQ(gpu_of_local_rank(5, 1), 0);
  EXPECT_EQ(gpu_of_local_rank(5, 0), 0);
}

// Nodes are alike, and so are the PCI addresses of their GPUs.
TEST(RankDevice, OneAddressOnTwoNodesIsTwoGpus) {
  const std::vector<RankHost> places{{"a", 0}, {"a", 0}, {"b", 2}, {"b", 2}};
  EXPECT_EQ(ranks_of_one_gpu(places, {"0000:01:00.0", "0000:02:00.0", "0000:01:00.0", "0000:02:00.0"}),
            std::nullopt);
  EXPECT_EQ(ranks_of_one_gpu(places, {"0000:01:00.0", "0000:02:00.0", "0000:02:00.0", "0000:02:00.0"}),
            std::pair(size_t{2}, size_t{3}));
}

TEST(RankDevice, PipelinesNeedALaunchOrder) {
  require_launch_order({"2.26.2", "2.28.9", "3.0.1"});
  expect_error(
      [&] {
        require_launch_order({"2.28.9", "2.25.1", "2.26.2"});
      },
      ExitCode::kResources, "needs NCCL 2.26, rank 1 has 2.25.1", "mesh.pipeline = 1");
}

TEST(RankDevice, OlderDriversRunMessagesOneAfterAnother) {
  EXPECT_EQ(launch_order_note("12.3"), "");
  EXPECT_EQ(launch_order_note("13.0"), "");
  EXPECT_EQ(launch_order_note(""), "");
  EXPECT_HAS(launch_order_note("12.2"), "CUDA 12.2: before 12.3");
}

}  // namespace
}  // namespace ripstop
