// RunDirectory: the files of one run, which rank 0 owns.
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
/// metrics.jsonl. Only rank 0 has one.
class RunDirectory {
 public:
  /// Makes the directory if it is absent, and takes the lock. If the directory has a config, it must agree
  /// with this one in everything that a run must not change; else throws Error(kUsage), listing old -> new.
  /// Other changes are noted. Throws Error(kUsage) if check_can_hold_run does, and Error(kStorage) if the
  /// directory cannot be written, or if another run owns it, and Error(kRequeue) as RunLock does.
  RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
               const std::string& prompt_template, const RunLockWait& wait = {});

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// For people: changes since the run began, locks that were taken over, a metrics.jsonl that was damaged or
  /// lost.
  const std::vector<std::string>& notes() const { return notes_; }

  /// prepare_checkpoint_directory, before anything is written there. If `checkpoints` is a link to a folder
  /// outside of the run, first takes the lock of that folder too: two runs must not write into one folder. A
  /// folder named `checkpoints` inside another run is covered by that run's LOCK, any other by a LOCK of its
  /// own. Throws Error(kStorage) if another run owns the folder.
  void prepare_checkpoints();
  /// The step of the newest checkpoint that prepare_checkpoints found, also of one that cannot be read now: a
  /// start from an older step would make it count as superseded. 0: there was none.
  int64_t newest_step() const { return newest_step_; }

  /// Throws Error(kCommunication), which means no progress, if the last three restarts of this job went on
  /// from `newest_step`, the newest step that is committed. Changes nothing.
  void require_progress(int64_t newest_step) const;
  /// Records that this start goes on from `step` (Takeovers), and returns its number, which every checkpoint
  /// must have. Call it before the first step and before open_metrics. Throws Error(kStorage), also if
  /// another process has taken over the run.
  int64_t take_over(int64_t step);

  /// Prepares the files for a run that goes on from `step`: writes config.toml, tokenizer.model and
  /// prompt_template.txt, cuts metrics.jsonl back to `step`, and opens it for appending. Nothing is written
  /// before this call and take_over, so a command that is refused changes nothing. If the lock was taken
  /// over, metrics.jsonl becomes a new file, into which the owner before cannot write.
  MetricsFile& open_metrics(int64_t step);
  MetricsFile& metrics() { return *metrics_; }
  /// RunLock::check_owner of the run and of the folder of its checkpoints. Looks at no file.
  void check_owner() const;
  /// RunLock::may_write of both, to be asked before every write. Looks at no file.
  bool may_write() const;
  /// Throws Error(kStorage) if another process has taken over the run, or the folder of its checkpoints, or
  /// has recorded a later takeover. Called before every commit. Waits while the file system does not answer,
  /// but no longer than the deadline of the run's saves: then throws Error(kCommunication).
  void check_still_owned() const;
  /// RunLock::is_stuck of one of them.
  bool is_stuck() const;

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
  /// Of the run, and of the folder of its checkpoints if that lies outside of the run.
  std::vector<std::unique_ptr<RunLock>> locks_;
  int64_t newest_step_ = 0;
  Takeover takeover_;  ///< number 0 until it is recorded
  std::unique_ptr<MetricsFile> metrics_;
};

/// Throws Error(kUsage), naming what is there, if `directory` or a folder above it is a file, or if it is no
/// run (is_run) and holds entries_in_the_way.
void check_can_hold_run(Io& io, const std::filesystem::path& directory);

/// Throws Error(kUsage) if `config_file` is the config.toml of a run in another directory than its own
/// `run.directory` names: the run was copied or moved. `config` was read from it.
void check_names_own_directory(Io& io, const std::filesystem::path& config_file, const RunConfig& config);

/// If `config_file` is the config.toml of a run, and `config`, read from it and the command line, names
/// another directory, which is not there: a text that names both, as the name may be a typing error. Else
/// empty.
std::string note_of_other_directory(Io& io, const std::filesystem::path& config_file,
                                    const RunConfig& config);

}  // namespace ripstop
