// Output of `ripstop plan`. Scripts rely on the keys of the documents.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "train/plan/fitting_meshes.h"
#include "train/plan/mesh_search.h"
#include "train/plan/run_length.h"

namespace ripstop {

/// The job of a search, from the command line.
struct SearchedJob {
  std::string config_file;
  std::vector<std::string> overrides;
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  int64_t cpus_per_task = 0;  ///< --cpus-per-task; 0: not given
  double step_tokens = 0;     ///< RunLength::step_tokens
  bool has_pipeline = false;  ///< mesh.pipeline is above 1 or overridden: commands include its keys
};

/// The table of a search with at least one row, and lines to paste for the first row.
std::string search_text(const MeshSearch& found, const RunTarget& target, const SearchedJob& job);

/// The document of a search, with an object for each row.
std::string search_document(const MeshSearch& found, const RunTarget& target, const SearchedJob& job,
                            const std::vector<std::string>& notes);

/// The document of a plan that was not refused. `continued`: the result of find_continued().
std::string plan_document(const RunConfig& config, const ResolvedRun& run, const RunLength& length,
                          const RunTarget& target, const std::filesystem::path& continued);

/// The document of a plan that does not fit.
std::string refusal_document(const PlanTooLarge& error, const RunTarget& target);

}  // namespace ripstop
