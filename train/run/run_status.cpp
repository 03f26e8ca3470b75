#include "train/run/run_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "data/files/directory.h"
#include "data/text/utf8.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/takeovers.h"
#include "train/config/run_config.h"
#include "train/machine/slow_ranks.h"
#include "train/plan/run_length.h"
#include "train/report/human_text.h"
#include "train/report/metrics.h"
#include "train/run/account_watch.h"
#include "train/run/time_limit.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

std::string text_of(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", without_nan_sign(*value), digits) : std::string("-");
}

// Finds the newest checkpoint by directory names, because status must stay fast for many runs.
std::optional<int64_t> newest_checkpoint(Io& io, const fs::path& run) {
  std::map<int64_t, fs::path, std::greater<>> by_step;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / "checkpoints", error)) {
    const std::optional<int64_t> step = parse_step_directory_name(entry.path().filename().string());
    // The manifest is written last, so a directory without a manifest is not committed.
    if (step && fs::exists(entry.path() / Manifest::kFileName, error)) by_step[*step] = entry.path();
  }
  const Takeovers takeovers = Takeovers::read(io, run / "checkpoints");
  for (const auto& [step, path] : by_step) {
    // A manifest is only read if a takeover from an earlier step may have superseded the checkpoint.
    if (takeovers.refusal(step, 0).empty()) return step;
    try {
      if (takeovers.refusal(step, read_manifest(io, path).state.takeover).empty()) return step;
    } catch (const Error&) {
      return step;  // damaged, as `checkpoint list` reports
    }
  }
  return std::nullopt;
}

void add_note(RunStatus& status, const std::string& text) {
  if (!text.empty()) status.note += (status.note.empty() ? "" : "; ") + text;
}

// Estimates the run's deadline and stop from the log.
void take_deadline(const MetricsLog& log, RunStatus& status) {
  const StartEvent& start = log.starts.back();
  double slowest = 0, save = assumed_save_seconds(start.checkpoint_bytes), deadline = *start.deadline;
  bool is_own = false;  // whether `save` is of this start
  std::string source = start.deadline_source;
  for (const WarningEvent& warning : log.warnings)
    if (warning.deadline && warning.time >= start.time) {
      deadline = *warning.deadline;
      source = warning.deadline_source.value_or("");
    }
  for (const StepMetrics& step : last_steps(log, kRecentSteps))
    slowest = std::max(slowest, step.step_seconds);
  for (const CheckpointEvent& each : log.checkpoints) {
    save = is_own ? std::max(save, each.seconds) : each.seconds;
    is_own = each.time >= start.time;
  }
  status.deadline = deadline;
  status.stops_at = deadline - reserve_seconds(save, slowest);
  add_note(status,
           fmt::format("the job ends at {} ({}), the run stops itself at about {} or an earlier signal",
                       clock_text(deadline), source, clock_text(*status.stops_at)));
}

// Takes the windows after step `since`. The log lists a rank as slow until three windows in a row were
// normal, but only ranks below kSlowShare in the last window are slow now.
void take_slow_ranks(std::span<const HostsEvent> windows, int64_t since, RunStatus& status) {
  constexpr size_t kShown = 4;
  std::vector<std::string> hosts;
  std::set<int64_t> named;
  for (size_t i = windows.size(); i-- > 0 && windows[i].step > since;)
    for (const HostsEvent::SlowRank& rank : windows[i].slow) {
      if (rank.speed >= kSlowShare || !named.insert(rank.rank).second) continue;
      const std::string who = fmt::format("rank {} ({})", rank.rank, rank.host);
      const std::string speed = fmt::format("at {:.2f} of the median speed", rank.speed);
      if (i + 1 == windows.size()) {
        hosts.push_back(rank.host);
        status.slow_ranks.push_back(fmt::format("{} {}", who, speed));
      } else {
        status.were_slow.push_back(fmt::format("{} was slow at step {}, {}", who, windows[i].step, speed));
      }
    }
  status.exclude = exclude_option(hosts);
  if (!hosts.empty())
    add_note(status, fmt::format("slow: {}; to leave them out of the job: {}",
                                 some_of(status.slow_ranks, kShown), status.exclude));
  add_note(status, some_of(status.were_slow, kShown));
}

// The sum of the sizes of the regular files, as far as they can be read.
int64_t bytes_below(const fs::path& directory) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->symlink_status(ignored).type() != fs::file_type::regular) continue;
    if (const auto size = entry->file_size(ignored); !ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

void take_validation(const ValidationEvent& validation, RunStatus& status) {
  // Step 0 is no candidate for the best checkpoint, because a run does not keep its initial weights.
  if (validation.step == 0) return;
  if (std::isfinite(validation.loss) &&
      validation.loss <= status.best_validation_loss.value_or(validation.loss)) {
    status.best_validation_loss = validation.loss;
    status.best_validation_sets.clear();
    for (const SetScores& set : validation.sets.value_or(std::vector<SetScores>()))
      status.best_validation_sets.emplace_back("", set.loss);
  }
  if (validation.rougeL)
    status.best_rougeL = std::max(*validation.rougeL, status.best_rougeL.value_or(*validation.rougeL));
}

// Names the data sets of RunStatus::best_validation_sets by the run's config.
void name_sets(RunStatus& status) {
  auto& sets = status.best_validation_sets;
  if (sets.empty()) return;
  try {
    const std::vector<std::string> paths =
        load_run_config((status.directory / "config.toml").string()).data.all();
    const std::vector<std::string> names = short_paths(paths);
    if (paths.size() != sets.size()) fail(ExitCode::kStorage, "config.toml has other data sets");
    std::string text;
    for (size_t set = 0; set < sets.size(); ++set) {
      sets[set].first = paths[set];
      text += fmt::format("{}{} {}", set == 0 ? "" : ", ", names[set],
                          std::isfinite(sets[set].second) ? text_of(sets[set].second, 4) : "not validated");
    }
    add_note(status, "best val of each data set: " + text);
  } catch (const Error& error) {
    sets.clear();
    add_note(status, fmt::format("losses of the data sets are not named: {}", error.what()));
  }
}

// Takes the best score from the newest checkpoint, because the log was not read whole.
void take_stored_best(Io& io, RunStatus& status) {
  if (!status.newest_checkpoint) return;
  const fs::path path = status.directory / "checkpoints" / step_directory_name(*status.newest_checkpoint);
  try {
    if (const std::optional<BestSoFar> best = read_manifest(io, path).state.best)
      (best->metric == to_string(KeepBest::kRougeL) ? status.best_rougeL : status.best_validation_loss) =
          best->value;
  } catch (const Error& error) {
    add_note(status, fmt::format("scores between head and tail of the log are not known: {}", error.what()));
  }
}

void take_log(const MetricsLog& log, RunStatus& status) {
  const bool is_running = status.state == "running";
  status.account = last_account(log);
  if (!log.starts.empty()) {
    // The step for a log without steps; otherwise the last step replaces status.step below.
    status.step = log.starts.back().step;
    status.steps = log.starts.back().steps;
    status.started_at = log.starts.front().time;
  }
  for (const StartEvent& start : log.starts) {
    if (start.continued_from)
      add_note(status, fmt::format("began at step {} with {}", start.step, *start.continued_from));
    for (const ConfigDifference& change : start.changes)
      add_note(status, fmt::format("from step {} on {}", start.step + 1, change.text()));
  }
  for (const ValidationEvent& validation : log.validations) take_validation(validation, status);
  name_sets(status);
  if (status.state == "done" && log.ends.back().reason == EndReason::kNoImprovement)
    add_note(status,
             "ended before its last step, as validations brought no improvement "
             "(train.stop_after_validations)");
  if (is_running && !log.starts.empty() && log.starts.back().deadline) take_deadline(log, status);
  // A save whose checkpoint exists is not under way: its event may come later, or never after a kill.
  if (is_running && !log.saves.empty() && log.saves.back().state == SaveState::kBegun &&
      log.saves.back().step > status.newest_checkpoint.value_or(-1))
    status.saving_step = log.saves.back().step;
  if (log.steps.empty()) return;
  const StepMetrics& last = log.steps.back();
  status.step = last.step;
  status.loss = last.loss;
  status.learning_rate = last.learning_rate;
  status.tokens_per_second = last.tokens_per_second;
  // Skips events of earlier starts, which may have had other nodes.
  if (is_running) take_slow_ranks(log.hosts, log.starts.empty() ? -1 : log.starts.back().step, status);
  std::vector<double> seconds;
  for (const StepMetrics& step : last_steps(log)) seconds.push_back(step.step_seconds);
  if (is_running && status.steps > last.step && !seconds.empty())
    status.eta_seconds = median(std::move(seconds)) * static_cast<double>(status.steps - last.step);
}

std::string step_text(const RunStatus& run) {
  return run.steps > 0 ? fmt::format("{}/{}", run.step, run.steps) : std::to_string(run.step);
}

// "1000", "-", or "1000, saving 1200".
std::string checkpoint_text(const RunStatus& run) {
  const std::string newest = run.newest_checkpoint ? std::to_string(*run.newest_checkpoint) : "-";
  return run.saving_step ? fmt::format("{}, saving {}", newest, *run.saving_step) : newest;
}

}  // namespace

// The owner decides first, because a resumed run may be alive without a line since the last `end`.
std::string state_text(RunOwner::State owner, const std::optional<EndEvent>& end, bool is_empty) {
  if (owner == RunOwner::State::kAlive) return "running";
  if (end && end->exit_code == 0) return "done";
  if (end && end->exit_code == static_cast<int>(ExitCode::kRequeue)) return "stopped";
  if (end) return fmt::format("failed ({})", end->exit_code);
  return is_empty ? "empty" : "interrupted";
}

RunStatus read_status(Io& io, const fs::path& directory) {
  RunStatus status;
  status.directory = directory;
  try {
    status.size_bytes = bytes_below(directory);
    status.newest_checkpoint = newest_checkpoint(io, directory);
    const RunOwner owner = find_run_owner(io, directory);
    const fs::path metrics = directory / "metrics.jsonl";
    MetricsLog log;
    // A run that is still planning may have a LOCK only.
    if (path_exists(io, metrics)) {
      log = read_log_ends(metrics, last_takeover_steps(io, directory));
      if (log.has_gap) take_stored_best(io, status);
      // Allows a minute, because clocks of two machines may differ a little.
      if (const double age = age_of(metrics).value_or(0); age >= -60)
        status.seconds_since_update = std::max(age, 0.0);
      else
        add_note(status, "metrics.jsonl has a time in the future");
      add_note(status, log.damage.empty() ? "" : "metrics.jsonl: " + log.damage);
    }
    status.state = state_text(owner.state, log.ended ? std::optional(log.ends.back()) : std::nullopt,
                              log.starts.empty() && log.steps.empty());
    if (status.state == "interrupted" || status.state == "empty") add_note(status, owner.note);
    take_log(log, status);
  } catch (const std::exception& error) {
    status.state = "unreadable";
    add_note(status, error.what());
  }
  return status;
}

std::string status_table(std::span<const RunStatus> runs) {
  constexpr size_t kLeftAligned = 2;
  constexpr std::array<size_t, 4> kOnlyIfKnown = {5, 10, 11, 12};  // rougeL, node-h, kWh, tok/kWh
  using Cells = std::array<std::string, 16>;
  std::vector<Cells> rows = {{"run", "state", "step", "loss", "best val", "rougeL", "tok/s", "lr",
                              "checkpoint", "size", "node-h", "kWh", "tok/kWh", "eta", "updated", "started"}};
  std::string notes;
  for (const RunStatus& run : runs) {
    const RunAccount account = run.account.value_or(RunAccount());
    const std::optional<double> kwh = account.kwh, tokens_per_kwh = account.tokens_per_kwh();
    rows.push_back({run.directory.string(), run.state, step_text(run), text_of(run.loss, 4),
                    text_of(run.best_validation_loss, 4), text_of(run.best_rougeL, 4),
                    text_of(run.tokens_per_second, 0),
                    run.learning_rate ? fmt::format("{:.2e}", *run.learning_rate) : "-", checkpoint_text(run),
                    bytes_text(run.size_bytes), run.account ? amount_text(run.account->node_hours) : "-",
                    kwh ? amount_text(*kwh) : "-", text_of(tokens_per_kwh, 0),
                    run.eta_seconds ? duration_text(*run.eta_seconds) : "-",
                    run.seconds_since_update ? duration_text(*run.seconds_since_update) : "-",
                    run.started_at ? clock_text(*run.started_at) : "-"});
    if (!run.note.empty()) notes += fmt::format("{}: {}\n", run.directory.string(), run.note);
  }
  // Minimum widths of the columns, with at least two spaces between columns.
  std::array<size_t, std::tuple_size_v<Cells>> widths = {5,  12, 15, 10, 10, 8, 10, 10,
                                                         12, 11, 8,  8,  9,  9, 9,  21};
  for (const Cells& row : rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size() + 2);
  const auto is_shown = [&](size_t c) {
    return std::ranges::count(kOnlyIfKnown, c) == 0 ||
           std::any_of(rows.begin() + 1, rows.end(), [c](const Cells& row) { return row[c] != "-"; });
  };
  std::string table;
  for (const Cells& row : rows) {
    for (size_t c = 0; c < row.size(); ++c)
      if (is_shown(c))
        table += c < kLeftAligned ? fmt::format("{:<{}}", row[c], widths[c])
                                  : fmt::format("{:>{}}", row[c], widths[c]);
    table += "\n";
  }
  return table + notes;
}

std::string status_line(const RunStatus& run) {
  std::string line = fmt::format("{}  {}  step {}  loss {}", run.directory.string(), run.state,
                                 step_text(run), text_of(run.loss, 4));
  if (run.best_validation_loss) line += "  best val " + text_of(run.best_validation_loss, 4);
  if (run.tokens_per_second) line += fmt::format("  {} tok/s", text_of(run.tokens_per_second, 0));
  if (run.newest_checkpoint || run.saving_step) line += "  checkpoint " + checkpoint_text(run);
  if (run.eta_seconds) line += "  eta " + duration_text(*run.eta_seconds);
  if (!run.note.empty()) line += "  (" + run.note + ")";
  return line;
}

}  // namespace ripstop
