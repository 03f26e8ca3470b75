// RunDirectory: the files of one run, as rank 0 keeps them.
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

/// Owns RUN/ while the run lives: the lock, config.toml, tokenizer.model, prompt_template.txt and
/// metrics.jsonl. Only rank 0 has one.
class RunDirectory {
 public:
  /// Makes the directory where it is not there, and takes the lock. A directory that has a config must agree
  /// with this one in everything that a run must not change (Error(kUsage), listing old -> new); what may
  /// change is noted. Throws Error(kStorage) where the directory cannot be written, or another run owns it.
  RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
               const std::string& prompt_template);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  /// What changed since the run began, and what else people should know.
  const std::vector<std::string>& notes() const { return notes_; }

  /// The run goes on from `step`: writes config.toml and tokenizer.model, which until here are those of the
  /// last time, so that a command that is refused changes nothing; cuts metrics.jsonl back and opens it for
  /// appending.
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
