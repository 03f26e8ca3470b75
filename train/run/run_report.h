// Reports on a run's starts, on slow ranks and on its end.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "parallel/device_mesh.h"
#include "train/checkpoint/manifest.h"
#include "train/plan/resolved_run.h"
#include "train/report/metrics.h"
#include "train/run/speed_watch.h"

namespace ripstop {

/// The parts of a start in a line: "started in 1.92 s: program 0.10, MPI 0.41, data 0.20, ...".
std::string startup_text(const StartupSeconds& seconds);

/// Lines on what changed since the last start in `log`: nodes, mesh, stages, micro-batch, recomputation and
/// units, with idle share, memory and traffic, and the expected speed if the tensor axis has not changed. The
/// last line tells what stayed the same. Empty if nothing changed, or if there is no start.
std::vector<std::string> lines_since(const MetricsLog& log, const StartEvent& now, const RunConfig& config,
                                     const ResolvedRun& run);

/// The HostsEvent, without `time`, for a window that ends with `step`. `hosts`: each rank's, in mesh order.
HostsEvent hosts_event(const SpeedWindow& window, const std::vector<std::string>& hosts, int64_t step);

/// Texts for people: one for each rank that became slow in this window, with Slurm's option that excludes the
/// nodes of all slow ranks, and one for each rank that is no longer slow.
std::vector<std::string> speed_changes(const SpeedWindow& window, const std::vector<std::string>& hosts);

/// Why train.stop_after_validations ends the run before its `steps` steps, and how to train on. `was_done`:
/// an earlier start had ended it.
std::string early_end_line(const RunConfig& config, const CheckpointState& state, int64_t steps,
                           bool was_done);

/// "best: step 150 with loss 5.1300; 9 validations since then no better". `state` must have a best score.
std::string best_line(const CheckpointState& state);

/// A line "next:", then commands for a run that is done, with their purposes. `kind`: of its first data set.
std::vector<std::string> next_lines(const RunConfig& config, ExampleKind kind);

}  // namespace ripstop
