// Takeovers: the starts that took a run's checkpoints over, and the step from which each went on. It fences
// off owners that were cut off: what they commit later is known by its number and never used.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "data/files/io.h"

namespace ripstop {

/// A start that took a run over.
struct Takeover {
  int64_t number = 0;   ///< from 1; above that of every start and every checkpoint before it
  int64_t step = 0;     ///< from which it went on; 0: the first weights
  std::string owner;    ///< "process 4711 on node7"
  std::string job;      ///< number of the Slurm job, that of the array if it is one of an array; or empty
  int64_t restart = 0;  ///< SLURM_RESTART_COUNT
  double time = 0;      ///< seconds since 1970-01-01 UTC
  bool operator==(const Takeover&) const = default;
};

/// The takeovers of the checkpoints in one folder, as CHECKPOINTS/takeovers.json has them. The file lies
/// beside the step directories and not in RUN, as `checkpoints` may be a link, and then the numbers are those
/// of the folder behind it. A takeover is written there, and synced, before its first step. Every checkpoint
/// has the number of the takeover that committed it (CheckpointState::takeover; 0 if it has none).
///
/// A checkpoint of step s and number n must not be used if there is a takeover with a number above n that
/// went on from a step before s: its owner was taken over, and committed it later. Equal steps are fine, as
/// that is the checkpoint that was taken. Source: fencing tokens in M. Kleppmann, How to do distributed
/// locking, 2016.
class Takeovers {
 public:
  static constexpr const char* kFileName = "takeovers.json";
  /// The most that are kept. The oldest go first.
  static constexpr int64_t kMost = 10'000;

  /// The takeovers of the folder `checkpoints`; none if it has no such file, or a damaged one: then problem()
  /// says so. Throws Error(kStorage) if the system refuses to read it.
  static Takeovers read(Io& io, const std::filesystem::path& checkpoints);
  /// Writes the file: a reader, also after a power loss, finds the old one or the new one. Throws
  /// Error(kStorage).
  void write(Io& io, const std::filesystem::path& checkpoints) const;

  const std::vector<Takeover>& all() const { return all_; }  ///< by number
  const std::string& problem() const { return problem_; }
  int64_t newest_number() const { return all_.empty() ? 0 : all_.back().number; }
  /// Adds one with the next number, above `least_number`, too. `job`, `restart`, owner and time are those of
  /// this process.
  const Takeover& add(int64_t step, int64_t least_number);
  /// Puts `takeover` back, which was written and is not there any more.
  void restore(const Takeover& takeover);

  /// Why the checkpoint of `step` that the takeover `number` committed must not be used: a text with both
  /// numbers; "" if it may be used.
  std::string refusal(int64_t step, int64_t number) const;

  /// Whether this process is a start of a Slurm job, whose restarts count.
  static bool is_in_job();
  /// How many restarts of this process's job, the newest in a row, went on from `step`. The first start of a
  /// job is no restart. 0 outside of a job: a person may try as often as they like.
  int64_t restarts_from(int64_t step) const;

 private:
  std::vector<Takeover> all_;
  std::string problem_;
};

/// The folder that holds the step directory `checkpoint`, however that was written ("." stands for it, too).
std::filesystem::path folder_of_checkpoint(const std::filesystem::path& checkpoint);

/// Throws Error(kStorage), with Takeovers::refusal and what people can do, unless the checkpoint in the
/// directory `checkpoint`, of `step` and committed by takeover `number`, may be used.
void require_not_superseded(Io& io, const std::filesystem::path& checkpoint, int64_t step, int64_t number);

/// Advice about a checkpoint that is refused, in `folder`.
std::string hint_for_superseded(const std::filesystem::path& folder);

}  // namespace ripstop
