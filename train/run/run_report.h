// The report of a run on itself: the header for people, and the events that begin and end metrics.jsonl.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset/token_dataset.h"
#include "parallel/device_mesh.h"
#include "train/checkpoint/manifest.h"
#include "train/machine/peak_flops.h"
#include "train/plan/run_length.h"
#include "train/report/metrics.h"
#include "train/run/speed_watch.h"

namespace ripstop {

/// The first lines of a run: version, mesh, model, step, length, plan.
std::vector<std::string> header_lines(const RunConfig& config, const ResolvedRun& run,
                                      const RunLength& length, const RunTarget& target,
                                      const DeviceMesh& mesh, const Device& device);

/// The last line of a run: "planned / measured: memory 1.2 GiB / 1.2 GiB, sent per step 3.0 MiB / 3.0 MiB".
std::string cost_line(const StepCost& planned, const StepCost& measured);

/// Of a run that was done when it was started: what to change to train on.
std::string done_line(const RunConfig& config);

/// Of a run of `steps` steps that ended before the last one because of train.stop_after_validations: why, and
/// how to go on. `was_done`: it had ended before this start.
std::string early_end_line(const RunConfig& config, const CheckpointState& state, int64_t steps,
                           bool was_done);

/// What to type when the run in `directory`, trained on examples of `kind`, is done.
std::string next_line(const std::string& directory, ExampleKind kind);

/// The `start` event of a run that has done `step` steps. `length` has its data. Does not set `time`.
StartEvent start_event(const ResolvedRun& run, const RunLength& length, const DeviceMesh& mesh,
                       const std::optional<PeakFlops>& peak, const std::vector<std::string>& argv,
                       int64_t step);

/// The `hosts` event of a window that ends with `step`. `hosts` of all ranks, in mesh order. Does not set
/// `time`.
HostsEvent hosts_event(const SpeedWindow& window, const std::vector<std::string>& hosts, int64_t step);

/// For people: the ranks that are slow since this window, with the option that leaves out the nodes of all
/// slow ranks, and those that are slow no more. One text each.
std::vector<std::string> speed_changes(const SpeedWindow& window, const std::vector<std::string>& hosts);

}  // namespace ripstop
