// A disk that is full for some steps of a run in this process.
#pragma once
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/train/run/small_runs.h"

namespace ripstop {

/// A full disk: while it lives, no file of this process grows beyond `bytes`.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

class FullDiskRuns : public SmallRuns {
 protected:
  /// Fills the disk from step 3, in the middle of a line of metrics.jsonl, until step `end`.
  void fill_until(int64_t end) {
    on_line_ = [this, end](const std::string& line) {
      if (line.starts_with("step 3/"))
        disk_ =
            std::make_unique<FullDisk>(std::filesystem::file_size(scratch_ / "run" / "metrics.jsonl") + 100);
      if (line.starts_with(fmt::format("step {}/", end))) disk_.reset();
    };
  }
  /// Fills the disk from step 3 until the run warns that step `step` was not saved. (A save beside training
  /// fails some time after its begin.)
  void fill_until_not_saved(int64_t step) {
    fill_until(-1);
    on_line_ = [this, step, fill = on_line_](const std::string& line) {
      fill(line);
      if (line.starts_with(fmt::format("warning: step {} was not saved", step))) disk_.reset();
    };
  }
  /// Fills the disk from step 3 until the run warns that lines wait. Their thread gets time between steps.
  void fill_until_lines_wait() {
    fill_until(-1);
    on_line_ = [this, fill = on_line_](const std::string& line) {
      fill(line);
      if (line.find("the lines wait in memory") != line.npos) disk_.reset();
      if (disk_ && line.starts_with("step ")) usleep(100'000);
    };
  }
  RunConfig ten_steps(const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all = {"train.steps=10", "log.every_steps=1"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    if (data_.empty()) data_ = make_data("data", 4);
    return config("run", data_, all);
  }
  std::string data_;
  std::unique_ptr<FullDisk> disk_;
};

}  // namespace ripstop
