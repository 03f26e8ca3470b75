#include "parallel/launcher.h"

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

// Sets the variables of a launcher, and puts back what was there.
class Launched {
 public:
  using Variables = std::map<std::string, std::string>;
  explicit Launched(const Variables& variables) {
    for (const char* name :
         {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK"}) {
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

}  // namespace
}  // namespace ripstop
