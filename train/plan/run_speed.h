// The speed that a run will have, as far as something is known about it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/plan/resolved_run.h"
#include "train/report/metrics.h"

namespace ripstop {

/// A speed, and how it is known.
struct RunSpeed {
  double tokens_per_second = 0;       ///< of all ranks together
  int64_t tokens_seen = 0;            ///< that the run has trained on already
  std::optional<double> utilization;  ///< the share of the peak that is taken for granted; nullopt: measured
  std::string source;                 ///< "measured by the run's last steps", "data sheet: ..."
};

/// The median speed, in tokens a second, of the last steps since the last start of `log`; nullopt if it made
/// none.
std::optional<double> median_speed_of_last_start(const MetricsLog& log);

/// The median speed of the last steps in a run's metrics.jsonl. nullopt if there are none, if the file cannot
/// be read, or if the run was of another model or sequence length, on another mesh, with other recomputation
/// or on another kind of device than `run` on `target`: their speed says nothing of this one.
std::optional<RunSpeed> measured_speed(const std::filesystem::path& metrics, const ResolvedRun& run,
                                       const RunTarget& target);

/// The speed at 40 % of `peak_flops`, the data-sheet peak of all ranks together, with what backward computes
/// again. Large models reach about that on GPUs, and small ones less. `source` says whose peak it is.
RunSpeed speed_at_peak(const ResolvedRun& run, double peak_flops, const std::string& source);

}  // namespace ripstop
