// What `ripstop plan --search` prints: the meshes that fit, and the lines that start a run on the best one.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/mesh_search.h"

namespace ripstop {

/// The job of a search, as its command line gives it.
struct SearchedJob {
  std::string config_file;
  std::vector<std::string> overrides;
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  int64_t cpus_per_task = 0;  ///< 0: not given
};

/// The options of sbatch for the job: "--nodes=2", "--ntasks-per-node=4".
std::vector<std::string> sbatch_options(const SearchedJob& job, const RunTarget& target);

/// "train CONFIG section.key=value ...", quoted for a shell, without the sizes that a search decides.
std::string train_words(const SearchedJob& job);

/// The sizes of `run` as overrides: "mesh.replicate=1 mesh.fsdp=2 ...".
std::string mesh_overrides(const ResolvedRun& run);

/// The share of a rank's memory that `run` takes, libraries included; nullopt if that memory is not known.
std::optional<double> device_share(const ResolvedRun& run, const RunTarget& target);

/// The table of `found`, at least one row, and for its first row the lines for the config and for Slurm.
std::string search_text(const MeshSearch& found, const RunTarget& target, const SearchedJob& job);

}  // namespace ripstop
