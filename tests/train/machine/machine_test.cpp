#include "train/machine/machine.h"

#include <gtest/gtest.h>

namespace ripstop {
namespace {

Machine healthy() {
  Machine machine;
  machine.fast_bfloat16 = true;
  machine.cores = 64;
  machine.cores_allowed = 64;
  machine.memory_bytes = int64_t{256} << 30;
  machine.shared_memory_free_bytes = int64_t{1} << 30;
  machine.disk_free_bytes = int64_t{1} << 40;
  machine.open_files_limit = 4096;
  return machine;
}

// Whether there is exactly one problem, whose text has `part`.
testing::AssertionResult only(const std::vector<std::string>& found, const std::string& part) {
  if (found.size() == 1 && found[0].find(part) != std::string::npos) return testing::AssertionSuccess();
  testing::AssertionResult result = testing::AssertionFailure() << found.size() << " problems";
  for (const std::string& each : found) result << "\n  " << each;
  return result;
}

TEST(Machine, HealthyOneHasNoProblems) {
  EXPECT_TRUE(machine_problems(healthy(), 8, 8, 8).empty());
  EXPECT_TRUE(machine_problems(healthy(), 1, 1, 64).empty());
}

TEST(Machine, EachProblemIsNamed) {
  Machine machine = healthy();
  EXPECT_TRUE(only(machine_problems(machine, 9, 9, 8), "9 ranks x 8 threads on 64 cores"));
  machine.cores_allowed = 8;
  EXPECT_TRUE(only(machine_problems(machine, 1, 1, 16), "16 threads a rank on 8 cores"));
  EXPECT_TRUE(machine_problems(machine, 8, 8, 8).empty());  // each rank bound to its own eight
  machine.cores_allowed = 1;
  EXPECT_TRUE(only(machine_problems(machine, 1, 1, 1), "1 of 64 cores"));
  machine = healthy();
  machine.cores_quota = 2.0;
  EXPECT_TRUE(only(machine_problems(machine, 4, 4, 1), "grants 2.0 cores to 4 ranks x 1 threads"));
  EXPECT_TRUE(machine_problems(machine, 2, 2, 1).empty());
  machine = healthy();
  machine.load = 8;
  machine.running = 12;
  EXPECT_TRUE(machine_problems(machine, 1, 1, 56).empty());  // cores for all
  EXPECT_TRUE(only(machine_problems(machine, 4, 4, 16), "other programs keep 8.0 of 64 cores busy"));
  EXPECT_TRUE(only(machine_problems(machine, 8, 8, 8), "other programs keep 4.0 of 64 cores busy"));
  machine.running = 4;  // the ranks themselves: the others have ended
  EXPECT_TRUE(machine_problems(machine, 4, 4, 16).empty());
  machine = healthy();
  machine.fast_bfloat16 = false;
  EXPECT_TRUE(only(machine_problems(machine, 1, 1, 1), "bfloat16"));
  machine = healthy();
  machine.shared_memory_free_bytes = int64_t{60} << 20;  // docker's default is 64 MiB
  EXPECT_TRUE(machine_problems(machine, 4, 4, 1).empty());
  EXPECT_TRUE(only(machine_problems(machine, 8, 8, 1), "--shm-size"));
  machine = healthy();
  machine.open_files_limit = 64;
  EXPECT_TRUE(only(machine_problems(machine, 1, 1, 1), "ulimit -n"));
  machine = healthy();
  machine.disk_free_bytes = int64_t{5} << 20;
  EXPECT_TRUE(only(machine_problems(machine, 1, 1, 1), "5 MiB free on this disk"));
  machine = healthy();
  machine.environment = {{"SLURM_STEP_NUM_TASKS", "4"}};
  EXPECT_TRUE(only(machine_problems(machine, 1, 1, 1), "srun started 4 processes"));
  EXPECT_TRUE(machine_problems(machine, 4, 4, 1).empty());
}

TEST(Machine, GroupLimitIsWhatCanBeUsed) {
  Machine machine = healthy();
  EXPECT_EQ(usable_memory_bytes(machine), int64_t{256} << 30);
  machine.memory_limit_bytes = int64_t{4} << 30;
  EXPECT_EQ(usable_memory_bytes(machine), int64_t{4} << 30);
}

TEST(Machine, ThisOneHasCoresAndMemory) {
  const Machine machine = read_machine();
  EXPECT_FALSE(machine.host.empty());
  EXPECT_GE(machine.cores, machine.cores_allowed);
  EXPECT_GE(machine.cores_allowed, 1);
  EXPECT_GE(machine.running, 1);
  EXPECT_GT(machine.memory_bytes, machine.memory_available_bytes);
  EXPECT_GT(machine.memory_available_bytes, 0);
  EXPECT_FALSE(machine.instruction_set.empty());
}

}  // namespace
}  // namespace ripstop
