#include "train/run/time_limit.h"

#include <algorithm>
#include <ctime>

#include "data/process/child_process.h"
#include "data/process/process_identity.h"
#include "model/core/error.h"
#include "model/core/number.h"
#include "train/machine/machine.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

constexpr const char* kSlurmEnd = "SLURM_JOB_END_TIME";
constexpr const char* kOwnDeadline = "RIPSTOP_DEADLINE";
// A deadline further away than this means no limit: Slurm then gives a year, or its largest number.
constexpr double kNoLimitSeconds = 300.0 * 86400;

// `squeue` answers "N/A" for a job without an end, and "NONE" for a job without a limit, which gets a
// year, as in SLURM_JOB_END_TIME. SLURM_TIME_FORMAT asks for seconds since 1970.
std::optional<Deadline> ask_squeue(const std::string& job) {
  const std::optional<std::string> answer = output_of_program({"squeue", "-h", "-j", job, "-o", "%e"},
                                                              /*seconds=*/5, {{"SLURM_TIME_FORMAT", "%s"}});
  if (!answer) return std::nullopt;
  if (answer->starts_with("NONE")) return Deadline{clock_seconds(CLOCK_REALTIME) + 365 * 86400.0, "squeue"};
  const std::optional<int64_t> end = parse_whole_number(answer->substr(0, answer->find_first_of(" \t\r\n")));
  if (!end) return std::nullopt;
  return Deadline{static_cast<double>(*end), "squeue"};
}

// The name of this job for Slurm's programs. The job id of an array's last task stands for the whole array,
// so a task is named ARRAY_TASK.
std::string job_name() {
  const std::string array = environment_variable("SLURM_ARRAY_JOB_ID"),
                    task = environment_variable("SLURM_ARRAY_TASK_ID");
  return array.empty() || task.empty() ? environment_variable("SLURM_JOB_ID") : array + "_" + task;
}

std::optional<Deadline> slurm_deadline(std::vector<std::string>& notes) {
  const std::string job = job_name();
  if (job.empty()) return std::nullopt;
  std::optional<Deadline> found;
  if (const std::optional<int64_t> end = parse_whole_number(environment_variable(kSlurmEnd)))
    found = Deadline{static_cast<double>(*end), kSlurmEnd};
  else
    found = ask_squeue(job);
  const double now = clock_seconds(CLOCK_REALTIME);
  if (!found || found->time > now + kNoLimitSeconds) return std::nullopt;
  if (found->time > now) return found;
  // The variable comes from another job, or Slurm lets jobs run over their limit.
  notes.push_back(fmt::format("{} says that the job ended at {}: no time limit is known", found->source,
                              clock_text(found->time)));
  return std::nullopt;
}

std::optional<Deadline> own_deadline() {
  const std::string text = environment_variable(kOwnDeadline);
  if (text.empty()) return std::nullopt;
  const std::optional<int64_t> end = parse_whole_number(text);
  const double now = clock_seconds(CLOCK_REALTIME);
  if (end && static_cast<double>(*end) > now + kNoLimitSeconds) return std::nullopt;
  if (end && static_cast<double>(*end) > now) return Deadline{static_cast<double>(*end), kOwnDeadline};
  throw Error(ExitCode::kUsage,
              end ? fmt::format("{}={} is {}, which has passed", kOwnDeadline, text,
                                clock_text(static_cast<double>(*end)))
                  : fmt::format("{}=\"{}\" is no number of seconds since 1970", kOwnDeadline, text),
              fmt::format("for two hours from now: export {}=$(date -d '+2 hours' +%s)", kOwnDeadline));
}

}  // namespace

std::optional<Deadline> find_deadline(std::vector<std::string>& notes) {
  std::optional<Deadline> own = own_deadline(), slurm = slurm_deadline(notes);
  if (own && slurm) return own->time < slurm->time ? own : slurm;
  return own ? own : slurm;
}

double reserve_seconds(double save_seconds, double next_seconds) {
  return 2 * save_seconds + next_seconds + TimeLimit::kMarginSeconds;
}

bool TimeLimit::is_up(double next_seconds) {
  if (seconds_left() >= reserve(next_seconds)) return false;
  const std::string job = job_name();
  if (deadline_.source == kOwnDeadline || job.empty()) return true;
  if (const std::optional<Deadline> now = ask_squeue(job); now && now->time > deadline_.time) {
    deadline_ = *now;
    const auto own = parse_whole_number(environment_variable(kOwnDeadline));
    if (own && static_cast<double>(*own) < now->time) deadline_ = {static_cast<double>(*own), kOwnDeadline};
  }
  return seconds_left() < reserve(next_seconds);
}

double TimeLimit::seconds_left() const {
  return deadline_.time - clock_seconds(CLOCK_REALTIME);
}

void TimeLimit::took_step(double seconds) {
  steps_.push_back(seconds);
  if (steps_.size() > kRecentSteps) steps_.pop_front();
}

void TimeLimit::took_save(double seconds) {
  // The slowest save counts, because the disk may be just as busy again.
  save_seconds_ = save_is_measured_ ? std::max(save_seconds_, seconds) : seconds;
  save_is_measured_ = true;
}

double TimeLimit::step_seconds() const {
  return steps_.empty() ? 0 : *std::max_element(steps_.begin(), steps_.end());
}

std::string TimeLimit::text() const {
  return fmt::format(
      "the job ends at {} ({}), in {}; the run saves and stops itself about {} before, or when an earlier "
      "SIGUSR1 comes (sbatch --signal), with exit code 75",
      clock_text(deadline_.time), deadline_.source, duration_text(std::max(seconds_left(), 0.0)),
      duration_text(reserve(step_seconds())));
}

double LookIntervals::look() {
  const double now = clock_seconds(CLOCK_MONOTONIC);
  if (last_) longest_ = std::max(longest_, now - *last_);
  last_ = now;
  return longest_;
}

}  // namespace ripstop
