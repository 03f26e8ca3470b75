#include "train/run/trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel/agreement.h"
#include "train/checkpoint/manifest.h"
#include "train/machine/machine.h"
#include "train/report/human_text.h"
#include "train/report/step_line.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

// Enough to tell a bad batch from weights that are lost.
constexpr int64_t kSkipsInARow = 3;
// The weight of the last step in the smoothed step time, from which the time left is computed.
constexpr double kSmoothing = 0.05;

// Lines of metrics.jsonl that may wait in memory for room on the disk: those of some 100,000 steps.
constexpr int64_t kMostWaitingBytes = int64_t{64} << 20;

// A step without targets is skipped, too, but is no failure.
bool is_failure(const StepResult& result) {
  return result.skipped && result.target_count > 0;
}

}  // namespace

ExitCode Trainer::run() {
  if (!start()) {
    end_start();
    return ExitCode::kRequeue;
  }
  try {
    return train();
  } catch (const Error& error) {
    // Write how the run ended while its lock is still held, then let the error end the process.
    throw end_failed(error);
  }
}

ExitCode Trainer::train() {
  at_step_ = first_step_ = state_.step;
  // Before step 1, and if the last start was stopped between a step and its validation.
  if (validation_is_due()) validate_and_save();
  while (state_.step < steps_ && !has_stopped_improving() && !stop_agreed_) {
    if (!take_step()) break;  // stopped in the step, or no data left
    commit_if_written();
    if (!stop_agreed_ && validation_is_due()) validate_and_save();
    if (stop_agreed_) break;
    const int64_t every = options_.config.checkpoint.every_steps;
    if (every > 0 && state_.step % every == 0 && !has_save_of(state_.step)) save();
  }
  // Also after a stop request: that is what the time until the kill is for. Initial weights are nothing to
  // save. A save under way is not lost: it is finished first.
  if (saving_ || state_.step > 0) save_now(state_, options_.config.checkpoint.keep);
  // A stop request in the last step changes nothing if no validation is due: there is nothing left to do.
  const ExitCode code = !stop_agreed_ || is_done() ? ExitCode::kOk : ExitCode::kRequeue;
  if (code == ExitCode::kRequeue && saved_step_ <= first_step_) require_progress();
  do_and_agree(mesh_.world(), [&] {
    if (leads_) end(code);
  });
  return code;
}

// One optimizer step. Returns false at the end of the data, and if the step was given up.
bool Trainer::take_step() {
  world_.set_deadline(deadline_.in_step());
  const bool goes_on = compute_step();
  world_.set_deadline(deadline_.outside_steps());
  return goes_on;
}

bool Trainer::compute_step() {
  const Clock::time_point begin = Clock::now();
  const AxisBytes sent = mesh_.bytes_sent();
  at_step_ = state_.step + 1;
  mesh_.set_step(at_step_);
  profiler_.before(at_step_);
  std::optional<ProfilerRange> range;
  range.emplace(stream_.device(), fmt::format("step {}", at_step_));
  // The mesh counts since the start of the run. The step's share is the difference.
  waited_before_ = mesh_.seconds_waited();
  const double waited_in_all = mesh_.seconds_waited_in_all();
  double data_wait = 0, flops = 0;
  // Time inside `body` is time that the step waits for data.
  const auto waiting = [&](auto&& body) -> decltype(auto) {
    const Clock::time_point since = Clock::now();
    decltype(auto) result = body();
    data_wait += seconds_since(since);
    return result;
  };
  save_wait_seconds_ = save_alone_seconds_ = 0;
  long_step_.begin();
  const std::optional<LoaderStep> loaded = waiting([&] { return loader_->next_step(); });
  if (!loaded) return false;
  const double rate = options_.config.optimizer.learning_rate *
                      learning_rate_factor(options_.config.schedule, state_.step + 1, steps_);
  const StepResult result = step_->run(
      resolved_.micro_batches,
      [&](int64_t) {
        const PackedBatch& batch = waiting([&]() -> const PackedBatch& { return loader_->next_batch(); });
        flops += batch_flops(resolved_.model, batch);
        return batch.host_tokens();
      },
      rate, {.step = state_.step + 1, .update = state_.updates + 1},
      [&] { return stop_requested(seconds_to_next_stop()); },
      {.gives_up =
           [&](int64_t done) {
             if (leads_) directory_->check_owner();
             return long_step_.gives_up(
                 done, resolved_.micro_batches, [&] { return stop_requested(LongStepTimes{}.most_seconds); },
                 [&] { stream_.synchronize(); });
           },
       .save_work = [&] { return save_work(); },
       .before_update = [&](size_t unit) { await_snapshot(unit); }});
  range.reset();
  profiler_.after(at_step_);
  stop_agreed_ = result.given_up || result.stop_requests > 0;
  if (result.given_up) return false;
  is_held_ = false;
  all_have_written_ = result.saving_ranks == 0;
  a_disk_stands_ = result.still_disks > 0;

  if (is_failure(result) && skips_ == 0) updated_ = state_;
  state_.step += 1;
  // AdamW's bias correction counts updates. A skipped step is none.
  state_.updates += result.skipped ? 0 : 1;
  state_.epoch = loaded->end.epoch;
  state_.sequence = loaded->end.sequence;
  state_.tokens += loaded->rows;
  step_traffic_ = mesh_.bytes_sent() - sent;
  step_seconds_ = seconds_since(begin);
  if (time_limit_) time_limit_->took_step(step_seconds_);
  if (state_.step > first_step_ + 1) deadline_.learn(step_seconds_ - save_wait_seconds_);
  smoothed_step_seconds_ = smoothed_step_seconds_ > 0
                               ? (1 - kSmoothing) * smoothed_step_seconds_ + kSmoothing * step_seconds_
                               : step_seconds_;
  // Log first: if the numerics end the run, its last line shows why.
  log_step(*loaded, result, rate, data_wait);
  watch_speed(waited_in_all, flops);
  check_numerics(result);
  return true;
}

void Trainer::log_step(const LoaderStep& loaded, const StepResult& result, double rate, double data_wait) {
  for (const std::string& note : stream_.take_notes()) warn(note);
  if (!leads_) return;
  // The first step has loaded all kernels and filled all buffers of the libraries.
  if (!std::exchange(libraries_measured_, true))
    if (const auto beyond = library_memory_.beyond_bound(ledger_.now().total())) warn(*beyond);
  const double seconds = step_seconds_;
  const double rows_per_second = static_cast<double>(loaded.rows) / seconds;
  drop_wrong_peak(rows_per_second);
  const auto utilization = [&](double flops_per_token) -> std::optional<double> {
    // No peak is known for this device: no utilization is better than a wrong one.
    if (!peak_flops_) return std::nullopt;
    return flops_per_token * rows_per_second / peak_flops_->per_second;
  };
  const StepMetrics metrics{
      .step = state_.step,
      .tokens = loaded.rows,
      .tokens_seen = state_.tokens,
      .loss = result.loss,
      .grad_norm = result.gradient_norm,
      .learning_rate = rate,
      .step_seconds = seconds,
      .tokens_per_second = rows_per_second,
      .model_flops_utilization = utilization(flops_per_token_.causal),
      .model_flops_utilization_full_attention = utilization(flops_per_token_.full_attention),
      .peak_memory_bytes = measured_memory().total(),
      .communication_exposed_seconds = mesh_.seconds_waited() - waited_before_,
      .data_wait_seconds = data_wait,
      .save_wait_seconds = save_wait_seconds_,
      .startup = startup_of_step()};
  log(metrics);
  const double eta_seconds = smoothed_step_seconds_ * static_cast<double>(steps_ - state_.step);
  LiveLine* const live = options_.live;
  const int64_t every = options_.config.log.every_steps;
  if (every > 0 && (state_.step % every == 0 || state_.step == steps_ || state_.step == 1)) {
    end_live_line();
    say(step_line(metrics, steps_, target_.device_memory_bytes, eta_seconds));
  } else if (live != nullptr && live->is_due()) {
    live->show(live_step_line(metrics, steps_, eta_seconds));
  }
}

// A step that is faster than the peak proves that the peak was measured while others used the processors.
void Trainer::drop_wrong_peak(double rows_per_second) {
  if (!peak_flops_ || !peak_flops_->source.starts_with("measured")) return;
  if (flops_per_token_.causal * rows_per_second <= peak_flops_->per_second) return;
  peak_flops_.reset();
  warn(
      "a step was faster than the processors' peak, which was measured while other programs used them: there "
      "is "
      "no mfu from here on");
}

// One skipped step may be bad luck. Several in a row do not end by themselves, so the run ends. A run whose
// last step was skipped has not done what it was asked, so it is not done.
void Trainer::check_numerics(const StepResult& result) {
  if (!result.skipped) skips_ = 0;
  if (is_failure(result)) {
    ++skips_;
    warn(fmt::format("step {}: loss or gradient is not finite, the update was skipped on all ranks",
                     state_.step));
  }
  if (skips_ >= kSkipsInARow || (skips_ > 0 && state_.step == steps_)) end_without_update();
}

// Weights and moments are those after the last update, and are saved as the checkpoint of that step: if the
// run is started again, it makes the skipped steps again. Older checkpoints stay, whatever checkpoint.keep
// says: the weights may have gone wrong before the first skipped step.
void Trainer::end_without_update() {
  const int64_t step = updated_.step;
  // Without any update there are only the initial weights, which are nothing to save.
  if (saving_) finish_save();
  if (step > 0 && saved_step_ < step) save_now(updated_, /*keep=*/0);
  std::string hint = "begin a new run with a lower optimizer.learning_rate";
  if (step > 0)
    hint += fmt::format("; {} has the weights after the last update",
                        (std::filesystem::path(options_.config.run.directory) / "checkpoints" /
                         step_directory_name(saved_step_))
                            .string());
  throw Error(ExitCode::kNumerics,
              skips_ >= kSkipsInARow
                  ? fmt::format("loss or gradient was not finite in {} steps in a row, up to step {}", skips_,
                                state_.step)
                  : fmt::format("loss or gradient was not finite in the last step: there was no update after "
                                "step {} of {}",
                                step, steps_),
              hint);
}

// The plan of what this start has done, to be compared with what was measured: a start that resumes may end
// without a validation, and one that only validates makes no step.
MemoryUse Trainer::planned_memory() const {
  MemoryUse arena = at_step_ > first_step_ ? plan_.step_arena : MemoryUse{};
  if (has_evaluated_ && plan_.evaluation_arena.total() > arena.total()) arena = plan_.evaluation_arena;
  MemoryUse planned = with_arena(plan_.memory, arena);
  if (!resolved_.snapshot.beside_device)
    planned[MemoryCategory::kSnapshot] +=
        kept_bytes(resolved_.trained_table(), mesh_.sizes(), mesh_.position(), resolved_.step.adamw.moments,
                   resolved_.snapshot.most_bytes);
  return has_summarized_ ? planned += resolved_.summaries_memory : planned;
}

// `use`, but of the arena's capacity only `arena`.
MemoryUse Trainer::with_arena(MemoryUse use, const MemoryUse& arena) const {
  for (const MemoryCategory category : kMemoryCategories)
    use[category] += arena[category] - plan_.arena[category];
  return use;
}

// The most that ripstop has allocated on the device of this rank: all buffers, but only the used part of the
// arena, so that a plan that is too large shows.
MemoryUse Trainer::measured_memory() {
  return with_arena(ledger_.peak(), step_->arena().peak());
}

// Whether this rank wants to stop; `next_seconds` later it is asked again. Rank 0 also speaks for the time
// limit, and throws if another process owns the run.
bool Trainer::stop_requested(double next_seconds) {
  if (leads_ && directory_) directory_->check_owner();
  const bool requested = options_.stop_requested && options_.stop_requested();
  time_is_up_ = !requested && time_limit_ && time_limit_->is_up(next_seconds);
  return requested || time_is_up_;
}

// From the end of the step under way to the end of the next step, or of the validation before it. A
// validation could be cut, but then it is made again.
double Trainer::seconds_to_next_stop() const {
  if (!time_limit_) return 0;
  const double validation = validation_is_due_at(at_step_) ? time_limit_->validation_seconds() : 0;
  return std::max(validation, time_limit_->step_seconds());
}

// Collective. Throws if this start is the third restart of its job in a row that ends without a new
// checkpoint: the next one would end in the same way.
void Trainer::require_progress() {
  do_and_agree(mesh_.world(), [&] {
    if (!leads_ || !directory_) return;
    try {
      directory_->require_progress(first_step_);
    } catch (const Error&) {
      has_no_progress_ = true;
      throw;
    }
  });
}

// Collective: the end of a run that was stopped before its first step. It counts as a start, or a job whose
// time is too short for the start would go on being restarted without end.
void Trainer::end_start() {
  do_and_agree(mesh_.world(), [&] { open_directory_of_job(); });
  const bool has_directory = least_of_all_ranks(mesh_.world(), leads_ && !directory_ ? 0 : 1) == 1;
  if (has_directory) {
    first_step_ = newest_step_;
    do_and_agree(mesh_.world(), [&] {
      if (leads_) directory_->take_over(newest_step_);
    });
    require_progress();
  }
  say(
      fmt::format("stopped {} before the first step: nothing was trained and nothing is lost; run the same "
                  "command again",
                  stop_cause()));
}

void Trainer::end(ExitCode code) {
  directory_->check_still_owned();
  // A run whose log lacks lines is not done: the lines would be lost without a word.
  directory_->metrics().sync();
  write_end(code);
  say_end(code);
}

const char* Trainer::end_reason(ExitCode code) const {
  if (code == ExitCode::kRequeue) return time_is_up_ ? EndReason::kTimeLimit : EndReason::kStopRequested;
  if (has_no_progress_) return EndReason::kNoProgress;
  if (code != ExitCode::kOk) return EndReason::kError;
  return ends_early() ? EndReason::kNoImprovement : EndReason::kSteps;
}

// Once a start. If that fails, no line waits: the failure changes the code, and the next call writes a line
// with its own.
void Trainer::write_end(ExitCode code) {
  MetricsFile& metrics = directory_->metrics();
  if (!end_is_logged_)
    metrics.write_end(EndEvent{.step = state_.step,
                               .exit_code = static_cast<int>(code),
                               .reason = end_reason(code),
                               .planned = {planned_memory(), plan_.traffic_per_step},
                               .measured = {measured_memory(), step_traffic_},
                               .resident_before_bytes = resident_before_bytes_,
                               .resident_peak_bytes = resident_memory().peak_bytes,
                               .seconds = seconds_since(begin_)});
  end_is_logged_ = true;
  metrics.sync();
}

void Trainer::say_end(ExitCode code) {
  if (code == ExitCode::kOk && ends_early()) say(early_end_line(options_.config, state_, steps_, was_done_));
  if (was_done_ && !ends_early()) say(done_line(options_.config));
  if (!was_done_)
    say(cost_line({planned_memory(), plan_.traffic_per_step}, {measured_memory(), step_traffic_}));
  if (code == ExitCode::kOk && (was_done_ || (options_.live != nullptr && options_.live->is_live())))
    say(next_line(options_.config.run.directory, dataset_.header().kind));
  if (code == ExitCode::kRequeue)
    say(fmt::format("stopped {} {}: run the same command again to go on", stop_cause(),
                    at_step_ > state_.step ? fmt::format("in step {}, which is made again", at_step_)
                    : state_.step == 0     ? std::string("before the first step")
                                           : fmt::format("after step {}", state_.step)));
}

// Writes how the run ended, and returns the error with the step and with how to go on.
Error Trainer::end_failed(const Error& error) {
  std::string what = error.what(), hint = error.hint();
  if (leads_) {
    bool owned = false;
    try {
      // To a file system that does not answer, nothing is written.
      if (directory_->may_write()) {
        directory_->check_still_owned();
        owned = true;
        write_end(error.code());
      }
    } catch (const Error& second) {
      // A full disk: `error` tells of it already. Another owner: it may have removed what this one was
      // writing, and that is all that `error` tells.
      if (!owned && error.code() == ExitCode::kStorage) what = second.what(), hint = second.hint();
    } catch (const std::exception&) {
    }
    // If another process owns the run, this command is not the one to go on.
    if (owned && error.code() == ExitCode::kStorage)
      hint += fmt::format(
          "{}the same command then goes on from {}", hint.empty() ? "" : "; ",
          saved_step_ > 0 ? fmt::format("step {}", saved_step_) : "the beginning, as nothing was saved yet");
  }
  Error explained(error.code(), what, hint);
  explained.set_step(at_step_);
  return explained;
}

// A log that cannot be written is no reason to lose steps. Its lines wait in memory, and training goes on:
// the disk may have room, or answer again, before the next checkpoint.
void Trainer::log(const MetricsEvent& event) {
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
  if (!failure && waited) say("metrics.jsonl is written again and lacks no line");
}

// The lines must be on the disk before the checkpoint: a run that resumes there does not write them again. If
// they cannot be, the checkpoint is saved all the same: it is worth more than its lines.
void Trainer::sync_log() {
  MetricsFile& metrics = directory_->metrics();
  const bool waited = metrics.waiting_lines() > 0;
  try {
    metrics.sync();
  } catch (const Error& error) {
    // If nothing waits, the disk has failed to keep what was written: no checkpoint may count on it.
    if (error.code() != ExitCode::kStorage || metrics.waiting_lines() == 0) throw;
    say(fmt::format(
        "warning: {}; the checkpoint is saved all the same, and metrics.jsonl lacks {} if the run "
        "ends before they are written",
        error.what(), counted(metrics.waiting_lines(), "line")));
    return;
  }
  if (waited) say("metrics.jsonl is written again and lacks no line");
}

void Trainer::warn(const std::string& text) {
  if (!leads_) return;
  log(WarningEvent{.step = state_.step, .text = text});
  say("warning: " + text);
}

}  // namespace ripstop
