#include "train/run/run_log.h"

#include "train/report/human_text.h"

namespace ripstop {

void RunLog::warn(const std::string& text) {
  if (!directory_) return;
  write(WarningEvent{.step = step_, .text = text});
  say("warning: " + text);
}

void RunLog::write(const MetricsEvent& event) {
  if (!directory_) return;
  directory_->metrics().write(event);
  tell();
}

void RunLog::tell() {
  if (!directory_) return;
  directory_->check_owner();
  MetricsFile& metrics = directory_->metrics();
  const std::optional<Error> trouble = metrics.trouble();
  if (trouble && !lines_wait_)
    say(fmt::format("warning: {}; training goes on, and the lines wait in memory until they can be written",
                    trouble->what()));
  if (!trouble && lines_wait_) say("metrics.jsonl is written again and lacks no line");
  lines_wait_ = trouble.has_value();
  for (const std::string& note : metrics.take_notes()) warn(note);
}

// A checkpoint is worth more than log lines, so lines that cannot be written do not prevent the save.
void RunLog::sync() {
  if (!directory_) return;
  MetricsFile& metrics = directory_->metrics();
  try {
    metrics.sync();
  } catch (const Error& error) {
    // If no line waits, the sync itself failed, so no checkpoint may rely on this disk.
    if (error.code() != ExitCode::kStorage || metrics.waiting_lines() == 0) throw;
    lines_wait_ = true;
    say(fmt::format(
        "warning: {}; the checkpoint is saved all the same, and metrics.jsonl lacks {} if the run "
        "ends before they are written",
        error.what(), counted(metrics.waiting_lines(), "line")));
  }
}

}  // namespace ripstop
