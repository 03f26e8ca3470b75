#include "train/run/run_directory.h"

#include "data/directory.h"
#include "data/whole_file.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

// Larger files are no config and no tokenizer: refuse them instead of reading them into memory.
constexpr int64_t kMostConfigBytes = int64_t{1} << 20;
constexpr int64_t kMostTokenizerBytes = int64_t{64} << 20;

}  // namespace

RunDirectory::RunDirectory(Io& io, const RunConfig& config, const Tokenizer& tokenizer,
                           const std::string& prompt_template)
    : path_(config.run.directory),
      config_(to_toml(config)),
      tokenizer_(tokenizer.model()),
      prompt_template_(prompt_template) {
  std::error_code error;
  std::filesystem::create_directories(path_, error);
  if (error) fail_storage(path_, "make the directory", error.value());
  // Before anything is read: another process may be writing these files.
  lock_ = std::make_unique<RunLock>(io, path_);
  if (!lock_->takeover().empty()) notes_.push_back(lock_->takeover());

  const std::filesystem::path config_file = path_ / "config.toml", tokenizer_file = path_ / "tokenizer.model";
  if (path_exists(io, config_file)) {
    const RunConfig old =
        parse_run_config(read_whole_file(io, config_file, kMostConfigBytes), config_file.string());
    for (const ConfigDifference& difference : check_resume(old, config)) notes_.push_back(difference.text());
  }
  if (path_exists(io, tokenizer_file) &&
      read_whole_file(io, tokenizer_file, kMostTokenizerBytes) != tokenizer_)
    throw Error(
        ExitCode::kUsage,
        fmt::format("{} is not the data set's tokenizer, with which this run began", tokenizer_file.string()),
        "a new run is a new directory");
}

// Called after everything that may refuse the run: a refused start leaves the files of the run as they were.
MetricsFile& RunDirectory::open_metrics(int64_t step) {
  write_whole_file(path_ / "tokenizer.model", tokenizer_);
  write_whole_file(path_ / "prompt_template.txt", prompt_template_);
  write_whole_file(path_ / "config.toml", config_);
  const std::filesystem::path file = path_ / "metrics.jsonl";
  // The run goes on from a checkpoint. Steps after it are computed and written again.
  cut_to_step(file, step);
  metrics_ = std::make_unique<MetricsFile>(file);
  return *metrics_;
}

}  // namespace ripstop
