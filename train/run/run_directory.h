// RunDirectory: the files of a run, which rank 0 owns.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/run_config.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The run's directory while the run lives: the lock, config.toml, tokenizer.model, prompt_template.txt and
/// metrics.jsonl. On rank 0 only.
class RunDirectory {
 public:
  /// Makes the directory if it is absent, and takes the lock. Differences between `config` and the
  /// directory's config.toml become notes; throws Error(kUsage), listing old -> new, for differences that are
  /// not allowed. Also throws Error(kUsage) as check_can_hold_run, Error(kStorage) if the directory cannot be
  /// written or another run owns it, and Error(kRequeue) as RunLock.
  RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
               const std::string& prompt_template, const RunLockWait& wait = {});

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// Notes for people: changes of the config, locks that were taken over, a damaged or lost metrics.jsonl.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Calls prepare_checkpoint_directory. If `checkpoints` is a link to a folder outside of the run, first
  /// takes the lock of that folder, because two runs must not write into one folder: the LOCK of another run
  /// if the folder is its `checkpoints`, else a LOCK in the folder. Throws Error(kStorage) if another run
  /// owns it.
  void prepare_checkpoints();
  /// The step of the newest checkpoint that prepare_checkpoints found; 0 if there was none. Checkpoints that
  /// cannot be read count, too, because a start from an older step would supersede them.
  int64_t newest_step() const { return newest_step_; }

  /// Throws Error(kCommunication) if this job makes no progress: its last three restarts went on from
  /// `newest_step`, the newest committed step. Changes nothing.
  void require_progress(int64_t newest_step) const;
  /// Records that this start goes on from `step` (Takeovers). Returns the takeover's number for
  /// CheckpointState::takeover. Call it before the first step and before open_metrics. Throws
  /// Error(kStorage), also if another process has taken over the run.
  int64_t take_over(int64_t step);

  /// Prepares the files for a run that goes on from `step`: writes config.toml, tokenizer.model and
  /// prompt_template.txt, cuts metrics.jsonl back to `step`, and opens it for appending. Nothing is written
  /// before take_over and this call, so a refused command changes nothing. If the lock was taken over,
  /// metrics.jsonl becomes a new file, into which the previous owner cannot write.
  MetricsFile& open_metrics(int64_t step);
  MetricsFile& metrics() { return *metrics_; }
  /// The results of RunLock::check_owner, may_write and is_stuck for all locks together: check_owner() throws
  /// if any lock is lost, may_write() is true if all locks may be written under, is_stuck() if any is stuck.
  void check_owner() const;
  bool may_write() const;
  bool is_stuck() const;
  /// Calls RunLock::check_still_owned of all locks; also throws Error(kStorage) if another process has
  /// recorded a later takeover. The wait for a file system that does not answer ends before the deadline of
  /// the run's saves.
  void check_still_owned() const;

 private:
  void lock(const std::filesystem::path& directory);

  Io& io_;
  std::filesystem::path path_;
  std::string config_;
  std::string tokenizer_;
  std::string prompt_template_;
  std::vector<std::string> notes_;
  RunLockWait wait_;
  const RunLockTimes lock_times_;
  std::vector<std::unique_ptr<RunLock>> locks_;  ///< for the run, and for an outside folder of checkpoints
  int64_t newest_step_ = 0;
  Takeover takeover_;  ///< this start's takeover; its number is 0 until it is recorded
  std::unique_ptr<MetricsFile> metrics_;
};

/// Throws Error(kUsage) if `directory` or a folder above it is a file, or if `directory` is no run (is_run)
/// and has entries_in_the_way.
void check_can_hold_run(Io& io, const std::filesystem::path& directory);

/// Throws Error(kUsage) if `config_file` is the config.toml of a run that was copied or moved: `config`, read
/// from it, names another run.directory.
void check_names_own_directory(Io& io, const std::filesystem::path& config_file, const RunConfig& config);

/// A note for a new run that uses the config.toml of another run: `config_file` is a run's config.toml, and
/// `config`, read from it and the command line, names another directory, which does not exist (perhaps by a
/// typing error). Else empty.
std::string note_of_other_directory(Io& io, const std::filesystem::path& config_file,
                                    const RunConfig& config);

}  // namespace ripstop
