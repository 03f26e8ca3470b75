#include "train/run/run_log.h"

#include "train/report/human_text.h"

namespace ripstop {
namespace {

// Lines that may wait in memory: those of some 100,000 steps.
constexpr int64_t kMostWaitingBytes = int64_t{64} << 20;
constexpr const char* kWrittenAgain = "metrics.jsonl is written again and lacks no line";

}  // namespace

void RunLog::warn(const std::string& text) {
  if (!directory_) return;
  write(WarningEvent{.step = step_, .text = text});
  say("warning: " + text);
}

void RunLog::write(const MetricsEvent& event) {
  if (!directory_) return;
  MetricsFile& metrics = directory_->metrics();
  const bool waited = metrics.waiting_lines() > 0;
  std::optional<Error> failure;
  if (directory_->may_write()) {
    try {
      metrics.write(event);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kStorage) throw;
      failure = error;
    }
  } else {
    metrics.keep(event);
    failure = Error(ExitCode::kStorage, directory_->path().string() + " does not answer");
  }
  if (failure && metrics.waiting_bytes() > kMostWaitingBytes) throw Error(*failure);
  if (failure && !waited)
    say(fmt::format("warning: {}; training goes on, and the lines wait in memory until they can be written",
                    failure->what()));
  if (!failure && waited) say(kWrittenAgain);
}

// A checkpoint is worth more than its lines, so lines that cannot be written do not prevent the save.
void RunLog::sync() {
  if (!directory_) return;
  MetricsFile& metrics = directory_->metrics();
  const bool waited = metrics.waiting_lines() > 0;
  try {
    metrics.sync();
  } catch (const Error& error) {
    // If no line waits, the sync itself failed: no checkpoint may rely on that disk.
    if (error.code() != ExitCode::kStorage || metrics.waiting_lines() == 0) throw;
    say(fmt::format(
        "warning: {}; the checkpoint is saved all the same, and metrics.jsonl lacks {} if the run "
        "ends before they are written",
        error.what(), counted(metrics.waiting_lines(), "line")));
    return;
  }
  if (waited) say(kWrittenAgain);
}

}  // namespace ripstop
