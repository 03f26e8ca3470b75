#include "parallel/launch_environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/data/scratch_directory.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

// Sets the variables of a launcher, and restores the environment in the end.
class Launched {
 public:
  using Variables = std::map<std::string, std::string>;
  explicit Launched(const Variables& variables) {
    for (const char* name :
         {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK",
          "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"}) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::optional<std::string>() : value;
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Launched() {
    for (const auto& [name, value] : before_)
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

// A folder with libmpi.so and the plugins of an Open MPI.
struct OpenMpi {
  explicit OpenMpi(const std::vector<std::string>& plugins, const std::string& folder = "openmpi") {
    std::ofstream(library) << "library";
    fs::create_directories(scratch / folder);
    for (const std::string& plugin : plugins) std::ofstream(scratch / folder / plugin) << "plugin";
  }
  ScratchDirectory scratch;
  fs::path library = scratch / "libmpi.so.40";
};

TEST(UselessToOpenMpi, Pmi2NeedsAPluginThatSpeaksIt) {
  const Launched launched(Launched::Variables{{"SLURM_STEP_NUM_TASKS", "8"}, {"PMI_RANK", "3"}});
  const OpenMpi debian({"mca_pmix_ext3x.so", "mca_btl_tcp.so"}, "openmpi/lib/openmpi3");
  EXPECT_EQ(useless_to_open_mpi(4, debian.library), "pmi2");
  const OpenMpi site({"mca_pmix_ext3x.so", "mca_pmix_s2.so"});
  EXPECT_EQ(useless_to_open_mpi(4, site.library), "");
  EXPECT_EQ(useless_to_open_mpi(5, site.library), "pmi2");  // 5 has no such plugin
}

TEST(UselessToOpenMpi, WhatCannotBeSeenIsNotRefused) {
  const Launched launched(Launched::Variables{{"SLURM_STEP_NUM_TASKS", "8"}, {"PMI_RANK", "3"}});
  const OpenMpi in_one_file({});
  EXPECT_EQ(useless_to_open_mpi(4, in_one_file.library), "");
  EXPECT_EQ(useless_to_open_mpi(4, "/absent/libmpi.so"), "");
  EXPECT_EQ(useless_to_open_mpi(4, ""), "");
}

TEST(UselessToOpenMpi, SrunWithoutAProcessManagerIsRefused) {
  const Launched launched(Launched::Variables{{"SLURM_STEP_NUM_TASKS", "8"}});
  EXPECT_EQ(useless_to_open_mpi(4, OpenMpi({"mca_pmix_s2.so"}).library), "no process manager (none)");
}

TEST(UselessToOpenMpi, StartsThatWork) {
  const OpenMpi mpi({"mca_pmix_ext3x.so"});
  for (const Launched::Variables& variables : std::vector<Launched::Variables>{
           {},                                                   // nobody started it
           {{"SLURM_STEP_NUM_TASKS", "1"}},                      // alone in its step
           {{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "0"}},  // srun --mpi=pmix
           {{"SLURM_STEP_NUM_TASKS", "2"},
            {"OMPI_COMM_WORLD_RANK", "0"}}}) {  // mpirun, through Slurm's own step
    const Launched launched(variables);
    EXPECT_EQ(useless_to_open_mpi(5, mpi.library), "");
  }
}

using Names = std::vector<std::string>;

TEST(NodeList, IsExpandedAsSlurmDoes) {
  EXPECT_EQ(expand_node_list("n1"), (Names{"n1"}));
  EXPECT_EQ(expand_node_list("n[1-3,7]"), (Names{"n1", "n2", "n3", "n7"}));
  EXPECT_EQ(expand_node_list("gpu[08-11]"), (Names{"gpu08", "gpu09", "gpu10", "gpu11"}));
  EXPECT_EQ(expand_node_list("a,n[1-2],b"), (Names{"a", "n1", "n2", "b"}));
  EXPECT_EQ(expand_node_list("n[1-2],m[4]"), (Names{"n1", "n2", "m4"}));
  EXPECT_EQ(expand_node_list("n[1-4096]").size(), 4096U);
}

TEST(NodeList, WhatIsNoListGivesNoNames) {
  for (const char* text : {"", "n[1-2", "n[2-1]", "n[x]", "n[1-9999999]", "r[1-2]n[1-2]", "n[1--2]"})
    EXPECT_TRUE(expand_node_list(text).empty()) << text;
}

TEST(LaunchedInAStep, NumbersOfTheInnerLauncherComeBeforeThoseOfTheStep) {
  const Launched launched(Launched::Variables{
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"FLUX_TASK_RANK", "5"}, {"FLUX_JOB_SIZE", "8"}});
  EXPECT_EQ(launch_rank(), 5);
  EXPECT_EQ(launch_size(), 8);
}

class Launch : public testing::Test {
 protected:
  Launch() {
    for (const char* name : kNames) unsetenv(name);
  }
  ~Launch() override {
    for (const char* name : kNames) unsetenv(name);
  }
  static constexpr const char* kNames[] = {
      "PMIX_NAMESPACE", "SLURM_STEP_ID",       "PMI_JOBID",           "PALS_APID",         "FLUX_JOB_ID",
      "SLURM_JOB_ID",   "SLURM_RESTART_COUNT", "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"};
};

TEST_F(Launch, ItsNameTellsARequeuedJobFromTheOneBefore) {
  EXPECT_EQ(launch_name(), "");
  setenv("SLURM_JOB_ID", "42", 1);
  EXPECT_EQ(launch_name(), "") << "a batch script's own process is in no step";
  setenv("PMIX_NAMESPACE", "slurm.pmix.42.0", 1);
  EXPECT_EQ(launch_name(), "slurm.pmix.42.0.42");
  setenv("SLURM_RESTART_COUNT", "3", 1);
  EXPECT_EQ(launch_name(), "slurm.pmix.42.0.42.3");
  setenv("PMIX_NAMESPACE", "prterun-host/../@1", 1);
  EXPECT_EQ(launch_name(), "prterun-host_..__1.42.3") << "no folder above";
}

TEST_F(Launch, TheNodesOfTheStepComeBeforeThoseOfTheJob) {
  EXPECT_TRUE(launch_nodes().empty());
  setenv("SLURM_JOB_NODELIST", "n[1-4]", 1);
  EXPECT_EQ(launch_nodes().size(), 4U);
  setenv("SLURM_STEP_NODELIST", "n[2-3]", 1);
  EXPECT_EQ(launch_nodes(), (Names{"n2", "n3"}));
}

}  // namespace
}  // namespace ripstop
