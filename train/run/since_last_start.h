// What a start of a run changes against the start before it, as on another number of nodes, and its cost.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/plan/resolved_run.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The last start of a run so far.
struct LastStart {
  StartEvent event;
  std::optional<double> tokens_per_second;  ///< the median of its last steps; nullopt if it made none
};

/// That of a run's metrics.jsonl; nullopt if it has no start or cannot be read.
std::optional<LastStart> last_start(const std::filesystem::path& metrics);

/// Lines for people on what is another than at the last start: nodes, mesh, micro-batch, recomputation, idle
/// ranks, memory, traffic, and the speed to expect if a rank is as fast as before, or that it is not known,
/// as with another tensor axis. They end with what stays the same. `hosts` has the host of each rank. Empty
/// if nothing changed.
std::vector<std::string> lines_since(const LastStart& before, const RunConfig& config, const ResolvedRun& run,
                                     const std::vector<std::string>& hosts);

}  // namespace ripstop
