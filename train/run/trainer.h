// Trainer: one run, from its directory's state to its last step.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/mpi_world.h"
#include "train/config/run_config.h"

namespace ripstop {

/// What a run is started with.
struct TrainerOptions {
  RunConfig config;
  std::vector<std::string> argv;                ///< as typed, for metrics.jsonl
  std::function<void(const std::string&)> say;  ///< a line for people; called on rank 0 alone
  std::function<bool()> stop_requested;  ///< whether this rank wants to save and end after the step at hand
};

/// Everything of one run on one rank. All ranks of the world make one with equal options; construction and
/// `run` are collective, and what one rank fails with all ranks throw.
class Trainer {
 public:
  /// Reads the data set, decides what is "auto", plans, refuses what cannot work, takes the run directory,
  /// and resumes from its newest whole checkpoint or begins with fresh weights. Throws Error: kUsage config,
  /// kInputData data set, kResources mesh or memory, kStorage directory or checkpoint.
  Trainer(const TrainerOptions& options, MpiWorld& world);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains to the last step and validates: kOk. Where stop_requested says so on any rank: saves after the step
  /// at hand, or gives up the validation at hand and saves, and returns kRequeue; a validation that is due is
  /// then made when the run goes on, after the last step, too. Throws Error(kNumerics) after three steps in a
  /// row whose loss or gradient is not finite.
  ExitCode run();

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace ripstop
