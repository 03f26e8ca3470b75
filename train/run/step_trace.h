#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/mpi_world.h"
#include "train/report/trace_file.h"
#include "train/run/decided_run.h"
#include "train/run/run_log.h"

namespace ripstop {

/// Records the steps of run.profile_steps on every rank and writes RUN/trace, in the place of an earlier
/// trace. A run that resumes inside these steps records the rest; a run that stops inside them writes what it
/// has. If a rank cannot write its file, the run warns and goes on. On a GPU the times are the host's, and a
/// profiler collects the same steps.
class StepTrace {
 public:
  /// `run`, `world` and `stream` must outlive this object. `directory`: set on rank 0 only.
  StepTrace(const DecidedRun& run, MpiWorld& world, Stream& stream, RunLog& log,
            std::optional<RunDirectory>& directory)
      : run_(run), world_(world), stream_(stream), log_(log), directory_(directory) {}
  ~StepTrace() { record_into(nullptr); }
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  /// Call before() and after() around each step, while the device has no work, and finish() after the last.
  /// Collective.
  void before(int64_t step);
  void after(int64_t step) {
    if (step >= steps_.last) finish();
  }
  void finish();

  /// Begin and end the range of a whole step, also for a profiler.
  void begin(int64_t step, RangeRecorder::Time at);
  void end(RangeRecorder::Time at);

  /// The recorder; null without run.profile_steps.
  RangeRecorder* recorder() { return steps_.last > 0 ? &recorder_ : nullptr; }

 private:
  void record_into(RangeRecorder* recorder) {
    world_.record_into(recorder);
    stream_.record_into(recorder);
  }
  std::vector<BarrierTimes> meet() const;

  const DecidedRun& run_;
  MpiWorld& world_;
  Stream& stream_;
  RunLog& log_;
  std::optional<RunDirectory>& directory_;
  const StepRange steps_ = parse_step_range(run_.config.run.profile_steps);
  RangeRecorder recorder_;
  TraceFacts facts_;
  std::vector<BarrierTimes> before_;
  std::optional<ProfiledStretch> profiled_;
};

}  // namespace ripstop
