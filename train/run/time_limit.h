#pragma once
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ripstop {

struct Deadline {
  double time = 0;     ///< seconds since 1970-01-01 UTC
  std::string source;  ///< "SLURM_JOB_END_TIME", "squeue" or "RIPSTOP_DEADLINE"
};

/// The end of this process's job: the earlier of Slurm's end (SLURM_JOB_END_TIME, else the answer of `squeue`
/// within 5 s) and RIPSTOP_DEADLINE (seconds since 1970). nullopt if neither is known or within the
/// next 300 days. May start a process, so call it on one rank, before MPI starts. `notes` gets a note if
/// Slurm's end has passed. Throws Error(kUsage) if RIPSTOP_DEADLINE is no number or in the past.
std::optional<Deadline> find_deadline(std::vector<std::string>& notes);

/// The seconds that a run needs before its deadline: two saves (one may be under way), `next_seconds` until
/// its next chance to stop, and kMarginSeconds for its end.
double reserve_seconds(double save_seconds, double next_seconds);
/// The seconds of a save of `bytes` before one is measured: those of a slow disk.
constexpr double assumed_save_seconds(int64_t bytes) {
  return static_cast<double>(bytes) / 250e6;
}
/// The number of recent steps from which TimeLimit takes the slowest.
inline constexpr size_t kRecentSteps = 20;

/// Decides from measurements whether a run must stop to save before its job ends. On rank 0 only.
class TimeLimit {
 public:
  static constexpr double kMarginSeconds = 20;

  /// `save_seconds`: an estimate, until a save is measured.
  TimeLimit(Deadline deadline, double save_seconds)
      : deadline_(std::move(deadline)), save_seconds_(save_seconds) {}

  const Deadline& deadline() const { return deadline_; }
  double seconds_left() const;

  void took_step(double seconds);
  /// `seconds`: CheckpointEvent::seconds.
  void took_save(double seconds);
  void took_validation(double seconds) { validation_seconds_ = seconds; }

  /// The time of the slowest recent step; 0 before the first step.
  double step_seconds() const;
  /// The time of the last validation; 0 before the first validation.
  double validation_seconds() const { return validation_seconds_; }
  double reserve(double next_seconds) const { return reserve_seconds(save_seconds_, next_seconds); }
  /// Whether to stop now, if the next chance to stop is `next_seconds` later. Before it returns true for
  /// Slurm's limit, asks `squeue` (at most 5 s): the limit may have been raised, and deadline() then changes.
  /// posix_spawn starts the program, because MPI's networks may not permit a fork of this process.
  bool is_up(double next_seconds);

  /// A text for people: "the job ends at ...".
  std::string text() const;

 private:
  Deadline deadline_;
  double save_seconds_;
  bool save_is_measured_ = false;
  double validation_seconds_ = 0;
  std::deque<double> steps_;
};

/// The intervals between looks at the time limit in long work, such as a validation.
class LookIntervals {
 public:
  /// Returns the longest interval between two looks so far, in seconds.
  double look();

 private:
  std::optional<double> last_;
  double longest_ = 0;
};

}  // namespace ripstop
