#include "train/plan/run_length.h"

#include <algorithm>

#include "train/checkpoint/checkpoint_layout.h"
#include "train/machine/slow_ranks.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

// "786 examples, 402 documents cut to 512 tokens, 18.3% of all tokens are left out".
std::string data_text(const SetData& data, int64_t sequence_length) {
  std::string text = counted(data.examples, "example");
  if (data.cut_turns > 0)
    text += fmt::format(", {} cut to fit {} tokens", counted(data.cut_turns, "turn"), sequence_length);
  if (data.cut_documents > 0)
    text += fmt::format(", {} cut to {} tokens",
                        data.kind == ExampleKind::kConversation ? counted(data.cut_documents, "user's text")
                                                                : counted(data.cut_documents, "document"),
                        sequence_length);
  if (data.cut_summaries > 0)
    text +=
        fmt::format(", {} longer than data.sequence_length {} lose{} the end",
                    data.cut_summaries == 1 ? "1 summary" : fmt::format("{} summaries", data.cut_summaries),
                    sequence_length, data.cut_summaries == 1 ? "s" : "");
  if (data.without_targets > 0) text += fmt::format(", {} without a target", data.without_targets);
  if (data.cut_tokens == 0) return text + ", none is cut";
  return text + fmt::format(", {:.3g}% of all tokens are left out",
                            100 * static_cast<double>(data.cut_tokens) /
                                static_cast<double>(data.cut_tokens + data.epoch_tokens));
}

std::string epochs_text(double epochs) {
  return fmt::format("{:.3g} epoch{}", epochs, epochs == 1 ? "" : "s");
}

// Adds a line for each data set. With several: "data/xsum: 786 examples, none is cut; 112 sequences an epoch,
// 70% of the run's, about 2.3 epochs"; of a resumed run, 70% of those after step 40.
void add_data_lines(const DataSection& config, const TrainingData& data, std::vector<LengthLine>& lines) {
  const std::vector<double> shares = config.shares();
  for (size_t set = 0; set < data.sets.size(); ++set) {
    const SetData& one = data.sets[set];
    std::string text = data_text(one, config.sequence_length);
    if (data.sets.size() > 1) {
      text = fmt::format("{}: {}; {} an epoch", config.all()[set], text,
                         counted(one.epoch_sequences, "sequence"));
      if (!shares.empty())
        text += fmt::format(
            ", {:.3g}% of {}, about {}", 100 * shares[set],
            data.first_step > 0 ? fmt::format("those after step {}", data.first_step) : "the run's",
            epochs_text(one.epochs));
    }
    lines.push_back({"data", std::move(text)});
  }
}

// "4 epochs, 40 steps, 640492 tokens".
std::string run_text(const RunConfig& config, const RunLength& length) {
  if (!length.data) return length.steps ? counted(*length.steps, "step") : "";
  return fmt::format("{}{}, {}{}", length.data->epochs > 0 ? epochs_text(length.data->epochs) + ", " : "",
                     counted(length.data->steps, "step"), config.train.epochs ? "" : "about ",
                     counted(length.data->tokens, "token"));
}

// "wsd: up to step 3, constant to step 25, then 1-sqrt down to 0.1 of the rate after step 30".
std::string schedule_text(const ScheduleSection& schedule, int64_t steps) {
  std::string text(to_string(schedule.kind));
  const char* before = ": ";
  if (schedule.warmup_steps > 0) text += fmt::format(": up to step {}", schedule.warmup_steps), before = ", ";
  if (schedule.kind == ScheduleKind::kConstant) return text;
  if (schedule.kind == ScheduleKind::kWsd) {
    const int64_t decay = schedule.decay_steps(steps);
    text += fmt::format("{}constant to step {}", before, std::min(steps, steps - decay + 1));
    if (decay == 0) return text;
    text += fmt::format(", then {}", to_string(schedule.decay)), before = " ";
  }
  return text + fmt::format("{}down to {} of the rate after step {}", before, schedule.minimum_ratio, steps);
}

// "before step 1, every 500 steps and after the last; training ends after 3 in a row without a better loss".
std::string validation_text(const RunConfig& config) {
  const TrainSection& train = config.train;
  std::string text = train.validate_at_start ? "before step 1" : "";
  if (train.validate_every > 0)
    text += fmt::format("{}every {} and after the last", text.empty() ? "" : ", ",
                        counted(train.validate_every, "step"));
  if (train.stop_after_validations > 0)
    text += fmt::format("; training ends after {} in a row without a better {}", train.stop_after_validations,
                        to_string(config.checkpoint.keep_best));
  return text;
}

// "171.2 MiB; checkpoint.keep + 1 = 4 of them take 684.9 MiB": + 1, as a save commits before it deletes.
std::string checkpoint_text(const RunConfig& config, const RunLength& length) {
  const int64_t bytes = length.checkpoint_bytes, kept = length.kept_checkpoints;
  if (kept == 0) return fmt::format("{}; checkpoint.keep = 0 keeps all of them", bytes_text(bytes));
  return fmt::format("{}; checkpoint.keep{} + 1 = {} of them take {}", bytes_text(bytes),
                     kept > config.checkpoint.keep ? " + the best" : "", kept + 1,
                     bytes_text((kept + 1) * bytes));
}

std::string time_text(const RunLength& length) {
  const RunSpeed& speed = *length.speed;
  const std::string rate =
      fmt::format("{:.0f} tok/s, {} a step", speed.tokens_per_second, seconds_text(length.step_seconds()));
  const std::optional<double> seconds = length.seconds();
  if (!seconds) return rate + ", " + speed.source;
  std::string nodes = length.nodes > 0 ? ", " + amount_text(length.node_hours()) + " node-hours" : "";
  if (const std::optional<double> kwh = length.kwh()) nodes += ", " + amount_text(*kwh) + " kWh";
  return fmt::format("{}{} at {}{}, {}", duration_text(*seconds), speed.tokens_seen > 0 ? " left" : "", rate,
                     nodes, speed.source);
}

// Whether `run` on `target` should be as fast as the steps after `start`.
bool is_alike(const StartEvent& start, const ResolvedRun& run, const RunTarget& target) {
  // The source of a CPU's peak begins with "measured" even if the peak is not known (kNoCpuPeak).
  const bool on_cpu = start.peak_flops_source.rfind("measured", 0) == 0;
  return start.mesh == run.mesh && start.recompute == to_string(run.step.sharding.recompute) &&
         start.parameters == parameter_count(run.model) &&
         start.flops_per_token == run.flops_per_token().causal &&
         on_cpu == (target.device == DeviceKind::kCpu);
}

// The planned speed of a run of `length`, which may go on from a checkpoint. `source`: Rates::source.
RunSpeed planned_speed(const StepTime& time, const RunLength& length, const std::string& source) {
  std::string text = time.exposed_seconds > 0
                         ? fmt::format("of which {} wait for messages, ", seconds_text(time.exposed_seconds))
                         : "";
  text += "by " + source + time.left_out_text();
  const auto done = static_cast<double>(length.data ? length.data->first_step : 0);
  return {.tokens_per_second = length.step_tokens / time.seconds,
          .tokens_seen = std::llround(done * length.step_tokens),
          .source = text};
}

}  // namespace

std::span<const StepMetrics> last_steps(const MetricsLog& log, size_t most) {
  std::span<const StepMetrics> steps = log.steps;
  steps = steps.last(std::min(steps.size(), most));
  while (!steps.empty() && (log.starts.empty() || steps.front().time < log.starts.back().time))
    steps = steps.subspan(1);
  return steps;
}

std::optional<double> median_speed_of_last_start(const MetricsLog& log) {
  std::vector<double> speeds;
  for (const StepMetrics& step : last_steps(log)) speeds.push_back(step.tokens_per_second);
  const double speed = speeds.empty() ? 0 : median(speeds);
  return speed > 0 ? std::optional(speed) : std::nullopt;
}

std::optional<RunSpeed> measured_speed(const MetricsLog& log, const ResolvedRun& run,
                                       const RunTarget& target) {
  if (log.starts.empty() || !is_alike(log.starts.back(), run, target)) return std::nullopt;
  const std::optional<double> speed = median_speed_of_last_start(log);
  if (!speed) return std::nullopt;
  return RunSpeed{.tokens_per_second = *speed,
                  .tokens_seen = log.steps.back().tokens_seen,
                  .source = "measured by the run's last steps"};
}

StepRows rows_of(const std::optional<TrainingData>& data, int64_t sequence_length) {
  if (!data || data->epoch_sequences == 0 || data->epoch_tokens == 0) return {};
  const auto rows = static_cast<double>(data->epoch_sequences * sequence_length);
  return {static_cast<double>(data->epoch_targets) / rows, std::llround(data->squared_tokens / rows)};
}

void add_planned_time(RunTarget target, const std::string& gpu, ResolvedRun& run, RunLength& length) {
  if (!target.rates && target.device == DeviceKind::kCuda)
    target.rates = data_sheet_rates(gpu, run.step.sharding.compute);
  target.rows = rows_of(length.data, run.step.sharding.sequence_length);
  run.time = target.step_time(run.request(target.device));
  if (run.time && run.time->seconds > 0)
    length.speed = planned_speed(*run.time, length, target.rates->source);
  if (target.rates && target.rates->watts_per_rank)
    length.watts = *target.rates->watts_per_rank * static_cast<double>(target.ranks);
}

std::optional<double> RunLength::seconds() const {
  if (!speed || !steps || is_refused) return std::nullopt;
  const double all = data ? static_cast<double>(data->tokens) : static_cast<double>(*steps) * step_tokens;
  return std::max(all - static_cast<double>(speed->tokens_seen), 0.0) / speed->tokens_per_second;
}

std::optional<double> RunLength::kwh() const {
  if (!watts || !seconds()) return std::nullopt;
  return *watts * *seconds() / 3.6e6;
}

int64_t kept_checkpoints(const RunConfig& config, const ResolvedRun& run) {
  const CheckpointSection& saves = config.checkpoint;
  const bool keeps_best =
      saves.keep_best != KeepBest::kNone && run.validates && config.train.validate_every > 0;
  return saves.keep == 0 ? 0 : saves.keep + keeps_best;
}

RunLength run_length(const RunConfig& config, const ResolvedRun& run,
                     const std::optional<TrainingData>& data) {
  RunLength length;
  length.data = data;
  length.steps = length.data ? length.data->steps : config.train.steps;
  length.step_tokens =
      length.data ? static_cast<double>(length.data->tokens) / static_cast<double>(length.data->steps)
                  : static_cast<double>(config.train.global_batch_sequences * config.data.sequence_length);
  if (length.data && config.train.epochs)  // else the config was checked before
    check_steps(config.schedule, *length.steps,
                fmt::format("the {} steps that train.epochs come to", *length.steps));
  length.checkpoint_bytes = checkpoint_bytes(run.trained_table(), run.mesh, run.step.adamw.moments);
  length.kept_checkpoints = kept_checkpoints(config, run);
  return length;
}

std::vector<LengthLine> length_lines(const RunConfig& config, const RunLength& length) {
  std::vector<LengthLine> lines;
  if (length.data) {
    add_data_lines(config.data, *length.data, lines);
    const double steps = static_cast<double>(length.data->epoch_sequences) /
                         static_cast<double>(config.train.global_batch_sequences);
    if (length.data->epochs > 0)
      lines.push_back(
          {"epoch", fmt::format("{}, {:.4g} steps, {}", counted(length.data->epoch_sequences, "sequence"),
                                steps, counted(length.data->epoch_tokens, "token"))});
  }
  if (length.steps) lines.push_back({"run", run_text(config, length)});
  if (length.steps) lines.push_back({"schedule", schedule_text(config.schedule, *length.steps)});
  if (config.train.validate_at_start || config.train.stop_after_validations > 0)
    lines.push_back({"validation", validation_text(config)});
  lines.push_back({"checkpoint", checkpoint_text(config, length)});
  if (length.speed) lines.push_back({"time", time_text(length)});
  return lines;
}

}  // namespace ripstop
