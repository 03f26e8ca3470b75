// Reports of a run on its starts and on slow ranks: lines for people, and events for metrics.jsonl.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "parallel/device_mesh.h"
#include "train/plan/resolved_run.h"
#include "train/report/metrics.h"
#include "train/run/speed_watch.h"

namespace ripstop {

/// A line on the parts of a start: "started in 1.92 s: program 0.10, MPI 0.41, data 0.20, memory 0.60,
/// weights 0.11, ...".
std::string startup_text(const StartupSeconds& seconds);

/// The last start of a run.
struct LastStart {
  StartEvent event;
  std::optional<double> tokens_per_second;  ///< median of its last steps; nullopt if it made no step
};

/// The last start in a metrics.jsonl; nullopt if there is none or the file cannot be read.
std::optional<LastStart> last_start(const std::filesystem::path& metrics);

/// Lines on the differences between the last start and this one: nodes, mesh, micro-batch and recomputation,
/// their cost in idle ranks, memory and traffic, and the expected speed (only if the tensor axis is equal).
/// The last line tells what stays the same. Empty without differences.
std::vector<std::string> lines_since(const LastStart& before, const StartEvent& now, const RunConfig& config,
                                     const ResolvedRun& run);

/// The `hosts` event, without `time`, of a window that ends with `step`. `hosts`: the host of each rank, in
/// mesh order.
HostsEvent hosts_event(const SpeedWindow& window, const std::vector<std::string>& hosts, int64_t step);

/// Texts on the ranks whose state changed in this window: one for each rank that became slow, with the option
/// that leaves out the nodes of all slow ranks, and one for each rank that is slow no more.
std::vector<std::string> speed_changes(const SpeedWindow& window, const std::vector<std::string>& hosts);

}  // namespace ripstop
