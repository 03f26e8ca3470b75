// RunDirectory: the files of one run, which rank 0 owns.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/io.h"
#include "data/tokenizer.h"
#include "train/checkpoint/run_lock.h"
#include "train/config/run_config.h"
#include "train/report/metrics.h"

namespace ripstop {

/// The run's directory while the run lives: the lock, config.toml, tokenizer.model, prompt_template.txt and
/// metrics.jsonl. Only rank 0 has one.
class RunDirectory {
 public:
  /// Makes the directory if it is absent, and takes the lock. If the directory has a config, it must agree
  /// with this one in everything that a run must not change; else throws Error(kUsage), listing old -> new.
  /// Other changes are noted. Throws Error(kStorage) if the directory cannot be written, or if another run
  /// owns it.
  RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
               const std::string& prompt_template);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// For people: what changed since the run began, and whose lock was taken over.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Prepares the files for a run that goes on from `step`: writes config.toml, tokenizer.model and
  /// prompt_template.txt, cuts metrics.jsonl back to `step`, and opens it for appending. Nothing is written
  /// before this call, so a command that is refused changes nothing.
  MetricsFile& open_metrics(int64_t step);
  MetricsFile& metrics() { return *metrics_; }
  const RunLock& lock() const { return *lock_; }

 private:
  std::filesystem::path path_;
  std::string config_;
  std::string tokenizer_;
  std::string prompt_template_;
  std::vector<std::string> notes_;
  std::unique_ptr<RunLock> lock_;
  std::unique_ptr<MetricsFile> metrics_;
};

}  // namespace ripstop
