// Energy and cores of several ranks, which share a node in these tests.
#include <sched.h>

#include <cmath>
#include <optional>

#include "parallel/agreement.h"
#include "tests/expect_has.h"
#include "tests/parallel/rank_tests.h"
#include "tests/train/machine/powercap_tree.h"
#include "train/machine/machine.h"
#include "train/machine/peak_flops.h"
#include "train/run/account_watch.h"

namespace ripstop {
namespace {

class AccountRanks : public testing::Test {
 protected:
  AccountRanks() {
    if (is_first_) tree_.emplace(scratch_.path());
    if (is_first_) tree_->add("intel-rapl:0", "package-0");
    folder_ = text_of_rank_0(ranks_, scratch_.path().string());
  }
  ~AccountRanks() override { ranks_.barrier(); }
  void take(double joules) {
    if (is_first_) tree_->take("intel-rapl:0", joules);
    ranks_.barrier();
  }

  Communicator& ranks_ = test_world().communicator();
  const bool is_first_ = ranks_.rank() == 0;
  ScratchDirectory scratch_;
  std::optional<PowercapTree> tree_;
  std::filesystem::path folder_;
};

TEST_F(AccountRanks, ANodeCountsOnce) {
  AccountWatch account(test_world(), Device::cpu(), folder_ / "class/powercap");
  account.resume(folder_ / "none", 0, true);
  take(36'000);
  account.gather();
  EXPECT_NEAR(account.now(500)->kwh.value(), 0.01, 1e-9);
  EXPECT_NEAR(account.now(500)->tokens_per_kwh().value(), 50'000, 1e-3);
  // Later energy is known when the ranks have told each other.
  take(36'000);
  EXPECT_NEAR(account.now(500)->kwh.value(), ranks_.size() == 1 ? 0.02 : 0.01, 1e-9);
  EXPECT_FALSE(account.if_read(500));
  account.after_step();
  EXPECT_NEAR(account.if_read(500)->kwh.value(), 0.02, 1e-9) << "after the first step";
  account.after_step();
  EXPECT_FALSE(account.if_read(500)) << "ten seconds are not over";
}

TEST_F(AccountRanks, RanksThatAreBoundHaveCoresOfTheirOwn) {
  cpu_set_t all, own{};
  sched_getaffinity(0, sizeof all, &all);
  const double quota = read_machine().cores_quota.value_or(CPU_COUNT(&all));
  if (CPU_COUNT(&all) < 2 || quota < static_cast<double>(ranks_.size())) GTEST_SKIP() << "too few cores";
  int core = 0;
  for (int64_t skip = ranks_.rank() % 2; CPU_ISSET(core, &all) == 0 || skip-- > 0; ++core) continue;
  CPU_SET(core, &own);
  sched_setaffinity(0, sizeof own, &own);
  EXPECT_EQ(has_own_cores(test_world()), ranks_.size() <= 2);
  sched_setaffinity(0, sizeof all, &all);
}

TEST_F(AccountRanks, OneUnreadableNodeMakesTheSumUnknown) {
  const bool is_last = ranks_.rank() + 1 == ranks_.size();
  AccountWatch account(test_world(), Device::cpu(),
                       is_first_ ? folder_ / "none" : folder_ / "class/powercap");
  account.resume(folder_ / "none", 0, true);
  account.gather();
  EXPECT_FALSE(account.now(500)->kwh);
  EnergyMeter meter(posix_io(), is_last ? folder_ / "none" : folder_ / "class/powercap",
                    {.host = is_last, .gpus = {}});
  const std::vector<NodePower> nodes = power_of_nodes(test_world(), meter, false);
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_TRUE(std::isnan(nodes[0].watts.host));
  EXPECT_HAS(nodes[0].problem, "No such file or directory");
}

}  // namespace
}  // namespace ripstop
