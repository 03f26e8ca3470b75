#include "train/run/run_report.h"

#include <map>

#include "data/process/shell_word.h"
#include "model/kernels/cpu/processor.h"
#include "train/machine/slow_ranks.h"
#include "train/machine/version.h"
#include "train/plan/micro_batch.h"
#include "train/plan/plan_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

std::vector<std::string> hosts_of_slow(const SpeedWindow& window, const std::vector<std::string>& hosts) {
  std::vector<std::string> found;
  for (size_t r = 0; r < hosts.size(); ++r)
    if (window.slow[r]) found.push_back(hosts[r]);
  return found;
}

}  // namespace

StepCost step_cost(const MemoryUse& memory, const DeviceMesh::AxisBytes& traffic) {
  return {memory, {traffic.replicate, traffic.fsdp, traffic.tensor}};
}

std::vector<std::string> header_lines(const RunConfig& config, const ResolvedRun& run,
                                      const RunLength& length, const RunTarget& target,
                                      const DeviceMesh& mesh, const Device& device) {
  std::vector<std::string> lines = {
      fmt::format("ripstop {} ({})  {}  {}", version(), git_commit(), to_string(device),
                  cpu_instruction_set()),
      mesh.describe(),
      fmt::format("model: {}, computing in {}", parameters_text(run), to_string(run.step.sharding.compute)),
      fmt::format("step: {} of {} tokens; {}", counted(config.train.global_batch_sequences, "sequence"),
                  config.data.sequence_length, micro_batches_text(config, run)),
  };
  if (run.step.sharding.recompute != Recompute::kNone)
    lines.push_back(fmt::format("recompute: {}", recompute_text(run)));
  for (const LengthLine& line : length_lines(config, length))
    lines.push_back(fmt::format("{}: {}", line.name, line.text));
  lines.push_back(fmt::format("plan for the fullest rank:\n{}", plan_text(run, target.device_memory_bytes)));
  return lines;
}

std::string cost_line(const StepCost& planned, const StepCost& measured) {
  const auto sent = [](const TrafficBytes& t) { return bytes_text(t.replicate + t.fsdp + t.tensor); };
  return fmt::format("planned / measured: memory {} / {}, sent per step {} / {}",
                     bytes_text(planned.memory.total()), bytes_text(measured.memory.total()),
                     sent(planned.traffic_per_step), sent(measured.traffic_per_step));
}

std::string done_line(const RunConfig& config) {
  return fmt::format("{} was done already: give more {} to train on, or another run.directory for a new run",
                     config.run.directory, config.train.steps ? "train.steps" : "train.epochs");
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

std::string next_line(const std::string& directory, ExampleKind kind) {
  std::string text = fmt::format("next: ripstop evaluate {} for scores", shell_word(directory));
  // A model of running text continues it, and summarizes nothing.
  if (kind == ExampleKind::kSummary)
    text += fmt::format(", ripstop summarize {} for summaries of other texts", shell_word(directory));
  return text;
}

StartEvent start_event(const ResolvedRun& run, const RunLength& length, const DeviceMesh& mesh,
                       const std::optional<PeakFlops>& peak, const std::vector<std::string>& argv,
                       int64_t step) {
  const FlopsPerToken flops = run.flops_per_token();
  StartEvent event;
  event.step = step;
  event.steps = length.data->steps;
  event.argv = argv;
  event.version = std::string(version());
  event.git_commit = std::string(git_commit());
  event.replicate = run.mesh.replicate;
  event.fsdp = run.mesh.fsdp;
  event.tensor = run.mesh.tensor;
  event.hosts = mesh.hosts();
  event.recompute = std::string(to_string(run.step.sharding.recompute));
  event.micro_batch_sequences = run.step.sharding.sequence_count;
  event.micro_batches = run.micro_batches;
  event.data = {.kind = std::string(to_string(length.data->kind)),
                .examples = length.data->examples,
                .cut_documents = length.data->cut_documents,
                .cut_summaries = length.data->cut_summaries,
                .cut_tokens = length.data->cut_tokens,
                .sequences_per_epoch = length.data->epoch_sequences,
                .tokens_per_epoch = length.data->epoch_tokens};
  event.checkpoint_bytes = length.checkpoint_bytes;
  event.parameters = parameter_count(run.model);
  event.trained_parameters = run.trained_parameters();
  event.flops_per_token = flops.causal;
  event.flops_per_token_full_attention = flops.full_attention;
  // P parameters, L layers, C hidden size, T sequence length.
  event.flops_formula = "6 P + 6 L C T (causal), 6 P + 12 L C T (full attention)";
  // A elements of adapters.
  if (run.step.sharding.lora.any())
    event.flops_formula = "4 P + 6 A + 6 L C T (causal), 4 P + 6 A + 12 L C T (full attention)";
  if (peak) {
    event.peak_flops_per_second = peak->per_second;
    event.peak_flops_source = peak->source;
  }
  event.plan = step_cost(run.memory(), run.plan.traffic_per_step);
  return event;
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
          "{} is slow: it computes at {:.2f} of the ranks' median speed, {:.3g} s a step; to leave its node "
          "out of the job: {}",
          who, window.speeds[r], rank.compute_seconds, exclude_option(hosts_of_slow(window, hosts))));
  }
  return texts;
}

}  // namespace ripstop
