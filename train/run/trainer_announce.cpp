// What a start tells before its first step: the header for people, the `start` event for metrics.jsonl.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "train/report/human_text.h"
#include "train/run/since_last_start.h"
#include "train/run/trainer.h"

namespace ripstop {

// The speed that this run had before, or the one that the data sheets of its GPUs let expect.
std::optional<RunSpeed> Trainer::known_speed() const {
  if (state_.step > 0)
    return measured_speed(std::filesystem::path(options_.config.run.directory) / "metrics.jsonl", resolved_,
                          target_);
  if (!peak_flops_ || target_.device != DeviceKind::kCuda) return std::nullopt;
  return speed_at_peak(resolved_, peak_flops_->per_second, peak_flops_->source);
}

void Trainer::say_header() {
  const RunConfig& config = options_.config;
  length_.speed = known_speed();
  for (const std::string& line : header_lines(config, resolved_, length_, target_, mesh_, stream_.device()))
    say(line);
  // A run that has begun: the file has a start already.
  if (const auto before = last_start(std::filesystem::path(config.run.directory) / "metrics.jsonl");
      before && state_.step > 0)
    for (const std::string& line : lines_since(*before, config, resolved_, mesh_.hosts())) say(line);
  if (!weights_of_.empty()) say("weights of " + weights_of_);
  if (kernel_plans_ && kernel_plans_->count > 0)
    say(fmt::format("{} of attention made in {:.1f} s{}", counted(kernel_plans_->count, "plan"),
                    kernel_plans_->seconds, kernel_plans_->left > 0 ? ", others when they are needed" : ""));
  for (const std::string& note : options_.notes) say("note: " + note);
  for (const std::string& note : resolved_.notes) say("note: " + note);
  if (!validation_.note().empty()) say("note: " + validation_.note());
  if (time_limit_) say("time limit: " + time_limit_->text());
  say(startup_text(options_.start_times.seconds()));
  say(fmt::format("{} {} at step {} of {}; watch {}", state_.step > 0 ? "resumes" : "begins",
                  config.run.directory, state_.step, steps_,
                  (std::filesystem::path(config.run.directory) / "metrics.jsonl").string()));
}

// Tells people and metrics.jsonl what this run is and where it begins. A run that is done has nothing to
// tell people but say_end().
void Trainer::announce() {
  if (!leads_) return;
  if (!was_done_) say_header();
  StartEvent event = start_event(resolved_, length_, mesh_, peak_flops_, options_.argv, state_.step);
  if (kernel_plans_) {
    event.kernel_plans = kernel_plans_->count;
    event.kernel_plans_seconds = kernel_plans_->seconds;
  }
  // The source also tells that the run was on CPUs (measured_speed).
  if (!peak_flops_ && device_.kind == DeviceKind::kCpu) event.peak_flops_source = kNoCpuPeak;
  event.takeover = state_.takeover;
  if (time_limit_) {
    event.deadline = time_limit_->deadline().time;
    event.deadline_source = time_limit_->deadline().source;
  }
  event.startup = options_.start_times.seconds();
  directory_->metrics().write(event);
  std::vector<std::string> notes = directory_->notes();
  // Most changes are those since config.toml was written, too, and may have more to say of the resume.
  for (const std::string& note : resume_notes_) {
    const auto same = std::find_if(notes.begin(), notes.end(), [&](const std::string& change) {
      return note == change || note.starts_with(change + ", ");
    });
    if (same == notes.end())
      notes.push_back(note);
    else
      *same = note;
  }
  for (const std::string& note : notes) warn(note);
}

}  // namespace ripstop
