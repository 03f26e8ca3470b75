// ripstop status: shows the state of runs, from their files alone.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/io.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_lock.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/report/human_text.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

struct RunStatus {
  fs::path directory;
  std::string state;  // running, done, stopped, failed, interrupted, empty, unreadable
  std::string note;
  int64_t step = 0;
  int64_t steps = 0;
  std::optional<double> loss;
  std::optional<double> best_validation_loss;
  std::optional<double> tokens_per_second;
  std::optional<double> eta_seconds;
  int64_t newest_checkpoint = -1;  // step, -1: none
  double seconds_since_update = 0;
};

// The step of the newest checkpoint; -1 if there is none. Names and a look for the manifest have to do:
// status must stay fast over many runs.
int64_t newest_checkpoint(const fs::path& run) {
  int64_t newest = -1;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", error))
    // The manifest is written last: a directory without one is not committed.
    if (fs::exists(entry.path() / Manifest::kFileName, error))
      newest = std::max(newest, parse_step_directory_name(entry.path().filename().string()).value_or(-1));
  return newest;
}

/// The state of a run. The owner of the directory decides first: a resumed run may be alive and not have
/// written a line since the "end" of the run before it.
std::string state_of(const MetricsLog& log, RunOwner::State owner) {
  if (owner == RunOwner::State::kAlive) return "running";
  if (log.ended) {
    const int code = log.ends.back().exit_code;
    // "stopped" goes on when the same command is run again; "failed" needs a person.
    if (code == 0) return "done";
    return code == static_cast<int>(ExitCode::kRequeue) ? "stopped" : fmt::format("failed ({})", code);
  }
  if (log.starts.empty() && log.steps.empty()) return "empty";
  return "interrupted";
}

// The median of the last 21 steps. A few slow steps that saved or validated do not move it.
std::optional<double> recent_step_seconds(const std::vector<StepMetrics>& steps) {
  if (steps.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (size_t i = steps.size() - std::min<size_t>(steps.size(), 21); i < steps.size(); ++i)
    seconds.push_back(steps[i].step_seconds);
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2),
                   seconds.end());
  return seconds[seconds.size() / 2];
}

RunStatus read_status(const fs::path& run) {
  RunStatus status;
  status.directory = run;
  const fs::path metrics = run / "metrics.jsonl";
  status.newest_checkpoint = newest_checkpoint(run);
  MetricsLog log;
  RunOwner owner;
  try {
    PosixIo io;
    owner = find_run_owner(io, run);
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(metrics);
    status.seconds_since_update = std::chrono::duration<double>(age).count();
    log = read_metrics(metrics);
    // One run that cannot be read must not hide the others.
  } catch (const std::exception& error) {
    status.state = "unreadable";
    status.note = error.what();
    return status;
  }
  status.state = state_of(log, owner.state);
  if (status.state == "interrupted" && !owner.who.empty())
    status.note = owner.who + " ended without releasing the run";
  if (!log.starts.empty()) {
    // The start has the numbers of a run that has not finished a step yet.
    status.step = log.starts.back().step;
    status.steps = log.starts.back().steps;
  }
  for (const ValidationEvent& validation : log.validations)
    if (std::isfinite(validation.loss))
      status.best_validation_loss =
          std::min(validation.loss, status.best_validation_loss.value_or(validation.loss));
  if (log.steps.empty()) return status;
  const StepMetrics& last = log.steps.back();
  status.step = last.step;
  status.loss = last.loss;
  status.tokens_per_second = last.tokens_per_second;
  // A run that does not go on has no end to estimate.
  if (status.state == "running" && status.steps > last.step)
    status.eta_seconds = *recent_step_seconds(log.steps) * static_cast<double>(status.steps - last.step);
  return status;
}

// Returns `directory` if it is a run, else the runs directly inside it, else nothing: `runs/*` may also name
// folders that are no runs.
std::vector<fs::path> find_runs(const fs::path& directory) {
  if (!fs::is_directory(directory))
    throw Error(ExitCode::kUsage, fmt::format("{} is not a directory", directory.string()),
                "name run directories, or a folder that holds them");
  if (fs::exists(directory / "metrics.jsonl")) return {directory};
  std::vector<fs::path> runs;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (fs::exists(entry.path() / "metrics.jsonl")) runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end());
  return runs;
}

nlohmann::ordered_json as_json(const RunStatus& status) {
  const auto number = [](std::optional<double> value) {
    return value && std::isfinite(*value) ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json{{"directory", status.directory.string()},
                              {"state", status.state},
                              {"step", status.step},
                              {"steps", status.steps},
                              {"loss", number(status.loss)},
                              {"best_validation_loss", number(status.best_validation_loss)},
                              {"tokens_per_second", number(status.tokens_per_second)},
                              {"eta_seconds", number(status.eta_seconds)},
                              {"newest_checkpoint", nullptr},
                              {"seconds_since_update", status.seconds_since_update}};
  if (status.newest_checkpoint >= 0) json["newest_checkpoint"] = status.newest_checkpoint;
  if (!status.note.empty()) json["note"] = status.note;
  return json;
}

void print_table(const std::vector<RunStatus>& runs) {
  size_t width = 3;
  for (const RunStatus& run : runs) width = std::max(width, run.directory.string().size());
  fmt::print("{:<{}}  {:<12}{:>15}{:>10}{:>10}{:>10}{:>12}{:>9}{:>9}\n", "run", width, "state", "step",
             "loss", "best val", "tok/s", "checkpoint", "eta", "updated");
  const auto text = [](std::optional<double> value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : std::string("-");
  };
  for (const RunStatus& run : runs) {
    if (run.state == "unreadable") {
      fmt::print("{:<{}}  {:<12}{}\n", run.directory.string(), width, run.state, run.note);
      continue;
    }
    fmt::print(
        "{:<{}}  {:<12}{:>15}{:>10}{:>10}{:>10}{:>12}{:>9}{:>9}\n", run.directory.string(), width, run.state,
        run.steps > 0 ? fmt::format("{}/{}", run.step, run.steps) : std::to_string(run.step),
        text(run.loss, 4), text(run.best_validation_loss, 4), text(run.tokens_per_second, 0),
        run.newest_checkpoint >= 0 ? std::to_string(run.newest_checkpoint) : "-",
        run.eta_seconds ? duration_text(*run.eta_seconds) : "-", duration_text(run.seconds_since_update));
  }
}

struct StatusArguments {
  std::vector<std::string> directories;
  bool json = false;
};

// Reads files alone, so it works on a login node while the run is on others, or is over.
ExitCode print_status(const StatusArguments& given) {
  std::vector<RunStatus> runs;
  for (const std::string& directory : given.directories)
    for (const fs::path& run : find_runs(directory)) runs.push_back(read_status(run));
  if (runs.empty())
    throw Error(ExitCode::kInputData, fmt::format("no run in {}", fmt::join(given.directories, ", ")),
                "a run directory holds metrics.jsonl");
  if (given.json) {
    nlohmann::ordered_json document = nlohmann::ordered_json::array();
    for (const RunStatus& run : runs) document.push_back(as_json(run));
    fmt::print("{}\n", document.dump(2));
  } else {
    print_table(runs);
  }
  return ExitCode::kOk;
}

}  // namespace

void add_status(CommandLine& line) {
  Verb verb = line.verb("status", "runs, last step, loss, speed, state; from files alone");
  const auto given = std::make_shared<StatusArguments>();
  verb.option("DIR", given->directories, "run directories, or folders of runs").required();
  verb.flag("--json", given->json, "one JSON document: a list with an object for each run");
  verb.set_example("ripstop status runs/*");
  verb.set_action([given] { return print_status(*given); });
}

}  // namespace ripstop
