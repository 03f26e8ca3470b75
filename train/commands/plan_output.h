// Output of `ripstop plan`: the table of a search, and the documents of --json. Scripts rely on their keys.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/fitting_meshes.h"
#include "train/plan/mesh_search.h"
#include "train/plan/run_length.h"

namespace ripstop {

/// The job of a search, as the command line gives it.
struct SearchedJob {
  std::string config_file;
  std::vector<std::string> overrides;
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  int64_t cpus_per_task = 0;  ///< 0: not given
};

/// The table of a search with at least one row, and lines for config and job file to paste for the first row.
std::string search_text(const MeshSearch& found, const RunTarget& target, const SearchedJob& job);

/// The document of a search, with an object for each row. A key that is also in plan_document has the value
/// that a plan of the row's mesh and micro-batch would have.
std::string search_document(const MeshSearch& found, const RunTarget& target, const SearchedJob& job,
                            const std::vector<std::string>& notes);

/// The document of a plan.
std::string plan_document(const RunConfig& config, const ResolvedRun& run, const RunLength& length,
                          const RunTarget& target);

/// The document of a plan that does not fit.
std::string refusal_document(const PlanTooLarge& error, const RunTarget& target);

}  // namespace ripstop
