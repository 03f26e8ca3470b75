#include "train/run/run_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "data/process/shell_word.h"
#include "train/machine/slow_ranks.h"
#include "train/plan/micro_batch.h"
#include "train/plan/plan_text.h"
#include "train/plan/run_length.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

bool has_examples(const RunConfig& config, const char* split) {
  const std::filesystem::path file = std::filesystem::path(config.data.first()) / split;
  try {
    return std::filesystem::exists(file) && TokenDataset(file).examples() > 0;
  } catch (const std::exception&) {
    return false;  // no reason to end a run with an error
  }
}

std::vector<std::string> hosts_of_slow(const SpeedWindow& window, const std::vector<std::string>& hosts) {
  std::vector<std::string> found;
  for (size_t r = 0; r < hosts.size(); ++r)
    if (window.slow[r] && window.speeds[r] < kSlowShare) found.push_back(hosts[r]);
  return found;
}

std::string nodes_text(const StartEvent& start) {
  const std::set<std::string> nodes(start.hosts.begin(), start.hosts.end());
  return fmt::format("{} of {} in all", counted(std::ssize(nodes), "node"),
                     counted(start.mesh.ranks(), "rank"));
}

std::string micro_batch_text(const StartEvent& start) {
  if (start.micro_batch_sequences == 0) return "not known";  // the log was edited
  return fmt::format("{} in {} a step", counted(start.micro_batch_sequences, "sequence"),
                     start.micro_batches);
}

std::string stages_text(const StartEvent& start) {
  return fmt::format("of {} layers", fmt::join(start.pipeline_layers, ", "));
}

// The share of a step's computed sequences that are always empty.
double idle_share(const StartEvent& start, const RunConfig& config) {
  if (start.micro_batch_sequences == 0) return 0;
  return 1 - static_cast<double>(config.train.global_batch_sequences) /
                 static_cast<double>(computed_sequences(config, start.mesh, start.micro_batch_sequences));
}

// The share of a rank's time left after empty sequences and recomputation.
double useful_share(const StartEvent& start, const RunConfig& config, const ResolvedRun& run) {
  double again = 0;
  for (const Recompute mode : kRecomputes)
    if (to_string(mode) == start.recompute)
      again = recomputed_flops_per_token(run.model, run.step.sharding.sequence_length, mode).causal /
              run.flops_per_token().causal;
  return (1 - idle_share(start, config)) / (1 + again);
}

std::string speed_text(const MetricsLog& log, const StartEvent& now, const RunConfig& config,
                       const ResolvedRun& run) {
  const StartEvent& was = log.starts.back();
  const std::optional<double> tokens_per_second = median_speed_of_last_start(log);
  if (!tokens_per_second) return "not known: no step of the last start is left";
  const std::string measured = fmt::format("{:.0f} tok/s before", *tokens_per_second);
  if (was.mesh.tensor != now.mesh.tensor || was.micro_batch_sequences == 0)
    return fmt::format("{}; that of this mesh is not known yet", measured);
  const double expected = *tokens_per_second * static_cast<double>(now.mesh.ranks()) /
                          static_cast<double>(was.mesh.ranks()) * useful_share(now, config, run) /
                          useful_share(was, config, run);
  return fmt::format("{}, about {:.0f} expected if a rank is as fast as before", measured, expected);
}

}  // namespace

std::string startup_text(const StartupSeconds& s) {
  return fmt::format(
      "started in {:.2f} s: program {:.2f}, MPI {:.2f}, data {:.2f}, memory {:.2f}, weights {:.2f}, resume "
      "{:.2f}, other {:.2f}",
      s.total, s.program, s.mpi, s.data, s.memory, s.weights, s.resume, s.other);
}

std::vector<std::string> lines_since(const MetricsLog& log, const StartEvent& now, const RunConfig& config,
                                     const ResolvedRun& run) {
  if (log.starts.empty()) return {};
  const StartEvent& was = log.starts.back();
  std::vector<std::string> lines = {"since the last start:"};
  const auto add = [&](const char* name, const std::string& old_text, const std::string& new_text) {
    if (old_text != new_text) lines.push_back(fmt::format("  {:<12} {} -> {}", name, old_text, new_text));
  };
  add("nodes", nodes_text(was), nodes_text(now));
  add("mesh", was.mesh.to_text(), now.mesh.to_text());
  if (!was.pipeline_layers.empty() && !now.pipeline_layers.empty())
    add("stages", stages_text(was), stages_text(now));
  add("micro-batch", micro_batch_text(was), micro_batch_text(now));
  add("recompute", was.recompute, now.recompute);
  add("units", std::string(units_text(was.reshard_after_forward)),
      std::string(units_text(now.reshard_after_forward)));
  if (lines.size() == 1) return {};
  const auto idle = [&](const StartEvent& start) {
    return fmt::format("{:.1f}%", 100 * idle_share(start, config));
  };
  if (was.micro_batch_sequences > 0) add("idle", idle(was), idle(now));
  add("memory", bytes_text(was.plan.memory.total()),
      bytes_text(now.plan.memory.total()) + " of the fullest rank");
  add("sent", bytes_text(was.plan.traffic_per_step.sum()),
      bytes_text(now.plan.traffic_per_step.sum()) + " a rank and step");
  lines.push_back(fmt::format("  {:<12} {}", "speed", speed_text(log, now, config, run)));
  const bool same_rate =
      was.steps == now.steps && std::ranges::none_of(now.changes, [](const auto& change) {
        return change.key == "optimizer.learning_rate" || change.key.starts_with("schedule.");
      });
  const bool same_order = std::ranges::count(now.changes, "data.weights", &ConfigDifference::key) == 0;
  lines.push_back(
      fmt::format("  as before: {} a step{}{}", counted(config.train.global_batch_sequences, "sequence"),
                  same_order ? ", the order of the data" : "", same_rate ? ", the learning rate" : ""));
  return lines;
}

HostsEvent hosts_event(const SpeedWindow& window, const std::vector<std::string>& hosts, int64_t step) {
  HostsEvent event;
  event.step = step;
  event.steps = window.steps;
  std::map<std::string, size_t> places;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const RankWork& rank = window.ranks[r];
    const auto [place, is_new] = places.try_emplace(hosts[r], event.hosts.size());
    if (is_new) {
      event.hosts.push_back(hosts[r]);
      event.compute_seconds.push_back(rank.compute_seconds);
      event.wait_seconds.push_back(rank.wait_seconds);
    } else if (rank.compute_seconds > event.compute_seconds[place->second]) {
      event.compute_seconds[place->second] = rank.compute_seconds;
      event.wait_seconds[place->second] = rank.wait_seconds;
    }
  }
  for (size_t r = 0; r < hosts.size(); ++r)
    if (window.slow[r])
      event.slow.push_back({static_cast<int64_t>(window.ranks[r].rank), hosts[r], window.speeds[r]});
  event.exclude = exclude_option(hosts_of_slow(window, hosts));
  return event;
}

std::vector<std::string> speed_changes(const SpeedWindow& window, const std::vector<std::string>& hosts) {
  std::vector<std::string> texts;
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (window.slow[r] == window.was_slow[r]) continue;
    const RankWork& rank = window.ranks[r];
    const std::string who = fmt::format("rank {:.0f} ({})", rank.rank, hosts[r]);
    if (!window.slow[r])
      texts.push_back(who + " is slow no more");
    else
      texts.push_back(fmt::format(
          "{} is slow: it computes at {:.2f} of the ranks' median speed, {} a step; to leave its node "
          "out of the job: {}",
          who, window.speeds[r], seconds_text(rank.compute_seconds),
          exclude_option(hosts_of_slow(window, hosts))));
  }
  return texts;
}

std::string early_end_line(const RunConfig& config, const CheckpointState& state, int64_t steps,
                           bool was_done) {
  const int64_t count = state.validations_since_best;
  const std::string best = state.best ? fmt::format("better {} than {:.4f} of step {}", state.best->metric,
                                                    state.best->value, state.best->step)
                                      : "finite score";
  return fmt::format(
      "{} at step {} of {}: {} brought no {}; to train on, give train.stop_after_validations=0 or more than "
      "{}",
      was_done ? fmt::format("{} was done already", config.run.directory) : "training ends", state.step,
      steps, count == 1 ? "the last validation" : fmt::format("{} validations in a row", count), best, count);
}

std::string best_line(const CheckpointState& state) {
  const int64_t since = state.validations_since_best;
  return fmt::format(
      "best: step {} with {} {:.4f}{}", state.best->step, state.best->metric, state.best->value,
      since == 0 ? "" : fmt::format("; {} since then no better", counted(since, "validation")));
}

std::vector<std::string> next_lines(const RunConfig& config, ExampleKind kind) {
  std::filesystem::path path = std::filesystem::path(config.run.directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string run = shell_word(path.string()), exported = shell_word(path.string() + "-exported");
  std::vector<std::pair<std::string, const char*>> commands;
  if (has_examples(config, "test.h5"))
    commands.emplace_back("evaluate " + run, "scores of a split");
  else if (has_examples(config, "validation.h5"))
    commands.emplace_back("evaluate " + run + " --split validation", "scores of a split");
  if (kind == ExampleKind::kSummary)
    commands.emplace_back("summarize " + run + " --input article.txt", "a summary of another text");
  if (kind == ExampleKind::kConversation)
    commands.emplace_back("summarize " + run + " --input question.txt", "an answer to another question");
  commands.emplace_back("report " + run, "its curves and texts as one HTML file");
  if (config.lora.any())
    commands.emplace_back(fmt::format("checkpoint export --format peft {} {}", run, exported),
                          "its adapters, for PEFT");
  else
    commands.emplace_back(fmt::format("checkpoint export {} {}", run, exported),
                          "its model, for transformers");
  size_t width = 0;
  for (const auto& [command, purpose] : commands) width = std::max(width, command.size());
  std::vector<std::string> lines = {"next:"};
  for (const auto& [command, purpose] : commands)
    lines.push_back(fmt::format("  ripstop {:<{}}  {}", command, width, purpose));
  return lines;
}

}  // namespace ripstop
