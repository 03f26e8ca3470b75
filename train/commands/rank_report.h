// The part of `ripstop doctor` about ranks: their speeds, and whether all run the same program and config.
#pragma once
#include <string>
#include <vector>

#include "data/text/json_reader.h"
#include "parallel/mpi_world.h"
#include "train/machine/rank_speed.h"

namespace ripstop {

/// All ranks of a launch.
struct RankReport {
  std::vector<std::string> hosts;  ///< by rank
  std::vector<RankSpeed> speeds;   ///< by rank
  std::vector<SlowRankFound> slow;
  std::string exclude;                   ///< the sbatch option that leaves out slow hosts; "" without any
  std::vector<std::string> differences;  ///< "program differs between ranks: ..."; empty: all are alike
};

/// Measures each rank on its `device`. Compares the content of the programs and, unless its name is empty, of
/// `config_file`. Returns the same report on all ranks. Collective.
RankReport report_ranks(MpiWorld& world, const Device& device, const std::string& config_file);

/// An object with `rank_speeds`, `slow_ranks`, `exclude` and `differences`.
JsonReader::Json rank_report_json(const RankReport& report);

/// The report for people: a table of at most 16 ranks, slow ranks, differences. Ends with a line end.
std::string rank_report_text(const RankReport& report);

}  // namespace ripstop
