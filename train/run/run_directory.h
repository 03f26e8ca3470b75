#pragma once
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/files/io.h"
#include "data/tokenizer/tokenizer.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/run_config.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The directory of a live run: the lock, config.toml, the tokenizer's files, prompt_template.txt,
/// metrics.jsonl, the checkpoints' folder and, with log.tensorboard, an EventFile a start. On rank 0 only.
class RunDirectory {
 public:
  /// Makes the directory if it is absent, and takes the lock. Allowed differences between `config` and the
  /// directory's config.toml become notes; `allow_changes`: as in accept_differences. Throws Error: kUsage
  /// for other differences, listing old -> new, or another tokenizer; kStorage if the directory cannot be
  /// read or written; the errors of RunLock and of check_can_hold_run.
  RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
               const std::string& prompt_template, const RunLockWait& wait = {}, bool allow_changes = false);

  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// Notes for people: changes of the config, locks taken over, damaged or lost files.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Makes the folder of checkpoints. If `checkpoints` is a link to a folder outside of the run, first takes
  /// a lock, because two runs must not write into that folder: the LOCK of the run that owns the folder, else
  /// a LOCK in the folder. Throws Error(kStorage), and like RunLock.
  void prepare_checkpoints();
  /// The step of the newest checkpoint that prepare_checkpoints found; 0 if it found no checkpoint.
  /// Unreadable checkpoints count, because a start from an older step would supersede them.
  int64_t newest_step() const { return newest_step_; }

  /// Throws Error(kCommunication) if the last three restarts of this job all went on from `newest_step`, the
  /// newest committed step.
  void require_progress(int64_t newest_step) const;
  /// Records that this start goes on from `step` (Takeovers). Returns the number for
  /// CheckpointState::takeover. Call it before the first step and open_metrics. Throws Error(kStorage), also
  /// if another process has taken over the run. `changes`: Takeover::changes.
  int64_t take_over(int64_t step, const std::vector<ConfigDifference>& changes = {});

  /// Writes config.toml, the tokenizer's files and prompt_template.txt, cuts metrics.jsonl back to `step`,
  /// and opens it for appending. No earlier call changes these files, so a refused command leaves them alone.
  /// If the lock was taken over, metrics.jsonl becomes a new file, into which the previous owner cannot
  /// write. `begins`: the run begins at `step`, so a log without earlier steps is no loss.
  MetricsFile& open_metrics(int64_t step, bool begins = false);
  MetricsFile& metrics() { return *metrics_; }
  bool has_metrics() const { return metrics_ != nullptr; }  ///< true after open_metrics()
  /// Asks all locks: both functions throw if a lock is lost; may_write() is true if all locks allow writes.
  void check_owner() const;
  bool may_write() const;
  /// Ends the thread of metrics.jsonl and waits at most `most` for it. Returns false if that thread, or the
  /// thread of a lock, is in a file system call that may never return: then this object must not be
  /// destroyed.
  bool ends_within(std::chrono::milliseconds most);
  /// Calls RunLock::check_still_owned of all locks; also throws Error(kStorage) if another process has
  /// recorded a later takeover, and records this start's again if it is lost. Waits for a lock's late
  /// heartbeat for less than the deadline of saves.
  void check_still_owned() const;

 private:
  void lock(const std::filesystem::path& directory);
  // Throws Error(kUsage) unless the directory has `tokenizer`.
  void check_tokenizer(const Tokenizer& tokenizer) const;

  Io& io_;
  std::filesystem::path path_;
  const RunConfig config_;
  std::vector<std::pair<std::string, std::string>> tokenizer_;  // name and bytes of each of its files
  std::string prompt_template_;
  std::vector<std::string> notes_;
  RunLockWait wait_;
  const RunLockTimes lock_times_;
  std::vector<std::unique_ptr<RunLock>> locks_;  ///< locks of the run and of an outside folder of checkpoints
  int64_t newest_step_ = 0;
  Takeover takeover_;  ///< takeover by this start; its number is 0 until it is recorded
  std::unique_ptr<MetricsFile> metrics_;
};

/// Throws Error(kUsage) if `directory` or a folder above it is a file, or if `directory` is no run and has
/// entries_in_the_way.
void check_can_hold_run(Io& io, const std::filesystem::path& directory);

/// Throws Error(kUsage) if `config_file` is the config.toml of a run in another directory than `config`'s
/// run.directory: the run was copied or moved, or the path is relative to another working directory.
void check_names_own_directory(Io& io, const std::filesystem::path& config_file, const RunConfig& config);

/// A note if `config_file` is another run's config.toml and the run.directory in `config` does not exist,
/// perhaps because of a typing error. Else empty.
std::string note_of_other_directory(Io& io, const std::filesystem::path& config_file,
                                    const RunConfig& config);

}  // namespace ripstop
