// Takeovers: the numbered starts that took over a run's checkpoints, and the checkpoints that they supersede.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "train/config/run_config.h"

namespace ripstop {

/// A start that took a run over.
struct Takeover {
  int64_t number = 0;   ///< from 1; above the number of every earlier takeover and checkpoint
  int64_t step = 0;     ///< the step from which the start went on; 0: the initial weights
  std::string owner;    ///< "process 4711 on node7"
  std::string job;      ///< number of the Slurm job, or of its job array; empty outside of Slurm
  int64_t restart = 0;  ///< SLURM_RESTART_COUNT
  double time = 0;      ///< seconds since 1970-01-01 UTC
  std::vector<ConfigDifference> changes = {};  ///< config changes that --allow-changes accepted
  bool operator==(const Takeover&) const = default;
};

/// The takeovers of the checkpoints in one folder: CHECKPOINTS/takeovers.json. The file lies beside the step
/// directories, because `checkpoints` may be a link into a shared folder. A takeover is written and synced
/// before its first step. CheckpointState::takeover is the number of the takeover that committed a
/// checkpoint.
///
/// A checkpoint of step s and number n is superseded, and must not be used, if a takeover with a number above
/// n went on from a step before s: an owner that had been taken over may have committed it. Source: fencing
/// tokens in M. Kleppmann, How to do distributed locking, 2016.
class Takeovers {
 public:
  static constexpr const char* kFileName = "takeovers.json";
  static constexpr int64_t kMost = 10'000;  ///< limit of takeovers in the file; the oldest are dropped

  /// Reads the takeovers of the folder `checkpoints`; none if the file is absent, damaged or of an older
  /// version (problem() tells of the last two). Throws Error(kStorage) if the system refuses to read it.
  static Takeovers read(Io& io, const std::filesystem::path& checkpoints);
  /// Replaces the file, atomically even if the power fails. Throws Error(kStorage).
  void write(Io& io, const std::filesystem::path& checkpoints) const;

  const std::vector<Takeover>& all() const { return all_; }  ///< ordered by number
  const std::string& problem() const { return problem_; }
  int64_t newest_number() const { return all_.empty() ? 0 : all_.back().number; }
  /// Adds a takeover by this process from `step`. Its number is above all other numbers and `least_number`.
  /// Throws Error(kStorage) if no larger number is allowed in the file.
  const Takeover& add(int64_t step, int64_t least_number, std::vector<ConfigDifference> changes = {});
  /// Adds `takeover`, which was written earlier, unless all() has its number.
  void restore(const Takeover& takeover);

  /// The changes of the takeovers with numbers above `number`, in their order.
  std::vector<ConfigDifference> changes_after(int64_t number) const;

  /// Why the checkpoint of `step` and takeover `number` is superseded; "" if it is not.
  std::string refusal(int64_t step, int64_t number) const;

  /// Whether this process runs in a Slurm job.
  static bool is_in_job();
  /// The number of takeovers at the end of all() that are restarts of this process's job from `step`. The
  /// first start of a job is no restart. 0 outside of a job, because people may try as often as they like.
  int64_t restarts_from(int64_t step) const;

 private:
  std::vector<Takeover> all_;
  std::string problem_;
};

/// The steps from which the last two takeovers of a run went on, in ascending order, for read_log_ends().
/// Two, because the log may not have the newest takeover yet. Throws nothing; empty without a readable file.
std::vector<int64_t> last_takeover_steps(Io& io, const std::filesystem::path& run);

/// The folder that holds the step directory `checkpoint`. The path may be relative, such as ".".
std::filesystem::path folder_of_checkpoint(const std::filesystem::path& checkpoint);

/// Throws Error(kStorage) if Takeovers::refusal refuses the checkpoint in the directory `checkpoint`.
void require_not_superseded(Io& io, const std::filesystem::path& checkpoint, int64_t step, int64_t number);

std::string hint_for_superseded(const std::filesystem::path& folder);

}  // namespace ripstop
