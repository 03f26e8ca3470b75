// Report of `ripstop doctor` on each rank of a launch: its speed, and whether it runs what the others run.
#pragma once
#include <string>
#include <vector>

#include "parallel/mpi_world.h"
#include "train/machine/rank_speed.h"

namespace ripstop {

/// All ranks of a launch.
struct RankReport {
  std::vector<std::string> hosts;  ///< by rank
  std::vector<RankSpeed> speeds;   ///< by rank
  std::vector<SlowRankFound> slow;
  std::string exclude;                   ///< the option that leaves out the hosts of slow ranks; may be empty
  std::vector<std::string> differences;  ///< "program differs between ranks: ..."; empty: all are alike
};

/// Measures all ranks on `device` of each and compares their programs and, if one is named, `config_file`, by
/// their content. Equal on all ranks. Collective.
RankReport report_ranks(MpiWorld& world, const Device& device, const std::string& config_file);

/// The report as a JSON object with `rank_speeds`, `slow_ranks`, `exclude` and `differences`.
std::string rank_report_json(const RankReport& report);

/// For people: a table of at most 16 ranks, the slow ones, what differs. Ends with a line end.
std::string rank_report_text(const RankReport& report);

}  // namespace ripstop
