// The documents of `ripstop plan --json`. Their keys are a contract with people's scripts.
#pragma once
#include <string>
#include <vector>

#include "train/commands/plan_search.h"
#include "train/plan/fitting_meshes.h"
#include "train/plan/run_length.h"

namespace ripstop {

/// The document of a plan. `flops` are those of its model.
std::string plan_document(const RunConfig& config, const ResolvedRun& run, const RunLength& length,
                          const RunTarget& target, const FlopsPerToken& flops);

/// The document of a plan that does not fit.
std::string refusal_document(const PlanTooLarge& error, const RunTarget& target);

/// The document of a search: the rows of its table, in which all keys that plan_document has too are equal to
/// those of a plan of that mesh and micro-batch.
std::string search_document(const MeshSearch& found, const RunTarget& target, const SearchedJob& job,
                            const std::vector<std::string>& notes);

}  // namespace ripstop
