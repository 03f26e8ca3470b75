#include "train/run/trainer.h"

#include <algorithm>
#include <utility>

#include "parallel/agreement.h"
#include "train/checkpoint/manifest.h"
#include "train/machine/machine.h"
#include "train/report/human_text.h"
#include "train/step/lr_schedule.h"

namespace ripstop {
namespace {

// Failed steps in a row that end the run: enough to tell lost weights from a bad batch.
constexpr int64_t kSkipsInARow = 3;

// A step without targets is skipped, too, but is no failure.
bool is_failure(const StepResult& result) {
  return result.skipped && result.sum.target_count > 0;
}

// The parts of the data sets in a step; nullopt if there is one data set.
std::optional<std::vector<SetStep>> sets_of_step(const LoaderStep& loaded, const StepResult& result) {
  if (loaded.sets.size() == 1) return std::nullopt;
  std::vector<SetStep> sets(loaded.sets.size());
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto targets = static_cast<double>(loaded.sets[i].target_count);
    sets[i] = {.tokens = loaded.sets[i].rows, .tokens_seen = loaded.end.sets[i].tokens};
    if (targets > 0) sets[i].loss = result.set_loss[i] / targets;
  }
  return sets;
}

}  // namespace

std::unique_ptr<Trainer> Trainer::make(TrainerOptions options, MpiWorld& world) {
  DecidedRun run = decide_run(options.config, world, options.start_times);
  return std::unique_ptr<Trainer>(new Trainer(std::move(options), world, std::move(run)));
}

Trainer::Trainer(TrainerOptions options, MpiWorld& world, DecidedRun run)
    : options_(std::move(options)),
      run_(std::move(run)),
      world_(world),
      leads_(world.communicator().rank() == 0),
      log_(leads_ ? options_.say : nullptr, leads_ ? options_.live : nullptr, directory_, state_.step) {}

ExitCode Trainer::run() {
  if (!start()) {
    end_start();
    return ExitCode::kRequeue;
  }
  try {
    return train();
  } catch (...) {
    throw end_failed(current_error());
  }
}

bool Trainer::can_be_destroyed() {
  constexpr std::chrono::seconds kPatience{3};
  if (directory_ && !directory_->ends_within(kPatience)) return false;
  return !saves_ || saves_->ends_within(kPatience);
}

ExitCode Trainer::train() {
  at_step_ = first_step_ = state_.step;
  if (continues_) saves_->save_now(state_, run_.config.checkpoint.keep, /*stops=*/false);
  // A validation may be due before step 1, or if the last start was stopped before that of its last step.
  bool stops = validation_is_due() && !validate_and_save();
  while (!stops && state_.step < steps_ && !has_stopped_improving()) {
    const std::optional<StepResult> result = take_step();
    if (!result) break;
    stops = result->given_up || result->sum.stop_requests > 0;
    if (result->given_up) break;
    saves_->after_step(*result);
    if (!stops && validation_is_due()) stops = !validate_and_save();
    const int64_t every = run_.config.checkpoint.every_steps;
    if (!stops && every > 0 && state_.step % every == 0 && !saves_->has(state_.step)) save();
  }
  // Saves also after a stop request, for which Slurm leaves time. Does not save initial weights.
  if (saves_->is_under_way() || state_.step > 0) saves_->save_now(state_, run_.config.checkpoint.keep, stops);
  trace_.finish();
  // A stop request in the last step changes nothing if no validation is due.
  const ExitCode code = !stops || is_done() ? ExitCode::kOk : ExitCode::kRequeue;
  if (code == ExitCode::kRequeue && saves_->saved_step() <= first_step_) require_progress(first_step_);
  account_.gather();
  do_on_rank_0(mesh_.world(), [&] {
    // Throws if lines still cannot be written, because a run whose log lacks lines is not done.
    directory_->metrics().sync();
    directory_->check_still_owned();
    log_.tell();
    write_end(code);
    say_end(code);
  });
  return code;
}

// Saves in the background if training goes on afterwards and checkpoint.asynchronous is set.
void Trainer::save() {
  saves_->save(state_, /*in_background=*/run_.config.checkpoint.asynchronous && state_.step < steps_ &&
                           !has_stopped_improving());
}

// Returns nullopt if no data is left.
std::optional<StepResult> Trainer::take_step() {
  trace_.before(state_.step + 1);
  world_.set_deadline(deadline_.in_step());
  StepWork work;
  const std::optional<StepResult> result = compute_step(work);
  if (result && !result->given_up) {
    saves_->end_updates();
    if (is_failure(*result) && skips_ == 0) updated_ = state_;
    state_.step += 1;
    // AdamW's bias correction counts updates, not skipped steps.
    state_.updates += result->skipped ? 0 : 1;
    state_.cursor = work.loaded.end;
    state_.tokens += work.loaded.rows;
    clock_.end();
    trace_.end(clock_.end_time());
    if (time_limit_) time_limit_->took_step(clock_.seconds());
    if (state_.step > first_step_ + 1) deadline_.learn(clock_.seconds() - saves_->wait_seconds());
    account_.after_step();
    // The step is logged before check_numerics, so that the log has the step that ends the run.
    log_step(work, *result);
    if (state_.step > first_step_ + 1) watch_speed(work.flops);
    check_numerics(*result);
  } else {
    trace_.end(RangeRecorder::now());
  }
  world_.set_deadline(deadline_.outside_steps());
  trace_.after(state_.step);
  return result;
}

std::optional<StepResult> Trainer::compute_step(StepWork& work) {
  clock_.begin();
  at_step_ = state_.step + 1;
  mesh_.set_step(at_step_);
  trace_.begin(at_step_, clock_.begin_time());
  saves_->begin_step();
  long_step_.begin();
  const Clock::time_point before_load = Clock::now();
  const std::optional<LoaderStep> loaded = [&] {
    const StorageWait wait(world_);
    const ProfilerRange data(stream_, "wait for data");
    return loader_->next_step();
  }();
  if (!loaded) return std::nullopt;
  work = {.loaded = *loaded,
          .learning_rate = run_.config.optimizer.learning_rate *
                           learning_rate_factor(run_.config.schedule, at_step_, steps_),
          .data_wait_seconds = seconds_since(before_load)};
  const auto next_batch = [&](int64_t) {
    log_.tell();
    const Clock::time_point since = Clock::now();
    const PackedBatch& batch = [&]() -> const PackedBatch& {
      const StorageWait wait(world_);
      const ProfilerRange data(stream_, "wait for data");
      return loader_->next_batch();
    }();
    work.data_wait_seconds += seconds_since(since);
    work.flops += batch_flops(run_.model, batch, step_->model().stages());
    return batch.host_tokens();
  };
  const auto gives_up = [&](int64_t done) {
    return long_step_.gives_up(
        done, run_.micro_batches, [&] { return stop_requested(options_.long_step.most_seconds); },
        [&] { stream_.synchronize(); });
  };
  // The next chance to stop is after the next step, or after a validation due before that step: a validation
  // that is given up must be made again.
  const auto stops = [&] {
    if (!time_limit_) return stop_requested(0);
    const double validation = validation_is_due_at(at_step_) ? time_limit_->validation_seconds() : 0;
    return stop_requested(std::max(validation, time_limit_->step_seconds()));
  };
  return step_->run(run_.micro_batches, next_batch, work.learning_rate,
                    {.step = at_step_, .update = state_.updates + 1}, stops,
                    {.gives_up = gives_up,
                     .save_work = [&] { return saves_->work(clock_.smoothed_seconds()); },
                     .before_update = [&](size_t unit) { saves_->await(unit); }});
}

void Trainer::log_step(const StepWork& work, const StepResult& result) {
  for (const std::string& note : stream_.take_notes()) log_.warn(note);
  if (!leads_) return;
  // One check after the first step suffices, because libraries have then loaded their kernels and buffers.
  if (state_.step == first_step_ + 1)
    if (const auto beyond = run_.library_memory.beyond_bound(ledger_.now().total())) log_.warn(*beyond);
  const double rows_per_second = static_cast<double>(work.loaded.rows) / clock_.seconds();
  drop_wrong_peak(rows_per_second);
  const auto utilization = [&](double flops_per_token) -> std::optional<double> {
    if (!peak_flops_) return std::nullopt;
    return flops_per_token * rows_per_second / peak_flops_->per_second;
  };
  const FlopsPerToken flops_per_token = run_.flops_per_token();
  const StepMetrics metrics{
      .step = state_.step,
      .tokens = work.loaded.rows,
      .tokens_seen = state_.tokens,
      .loss = result.loss,
      .grad_norm = result.gradient_norm,
      .learning_rate = work.learning_rate,
      .step_seconds = clock_.seconds(),
      .tokens_per_second = rows_per_second,
      .model_flops_utilization = utilization(flops_per_token.causal),
      .model_flops_utilization_full_attention = utilization(flops_per_token.full_attention),
      .peak_memory_bytes = measured_memory().total(),
      .communication_exposed_seconds = clock_.waited(),
      .sets = sets_of_step(work.loaded, result),
      .data_wait_seconds = work.data_wait_seconds,
      .save_wait_seconds = saves_->wait_seconds(),
      .startup = startup_of_step(),
      .account = account_.if_read(state_.tokens)};
  log_.write(metrics);
  loss_watch_.add(metrics.step, metrics.loss, metrics.grad_norm,
                  [this](const std::string& note) { log_.warn(note); });
  const double eta_seconds = clock_.smoothed_seconds() * static_cast<double>(steps_ - state_.step);
  const int64_t every = run_.config.log.every_steps;
  if (every > 0 && (state_.step % every == 0 || state_.step == steps_ || state_.step == 1)) {
    log_.end_live_line();
    log_.say(step_line(metrics, steps_, run_.target.device_memory_bytes, eta_seconds));
  } else if (log_.live_is_due()) {
    log_.show(live_step_line(metrics, steps_, eta_seconds));
  }
}

std::optional<StartupSeconds> Trainer::startup_of_step() const {
  if (state_.step != first_step_ + 1) return std::nullopt;
  StartTimes times = options_.start_times;
  times.enter(&StartupSeconds::other);
  StartupSeconds seconds = times.seconds();
  seconds.other -= clock_.seconds();
  seconds.first_step = clock_.seconds();
  return seconds;
}

// Collective.
void Trainer::watch_speed(const StageFlops& flops) {
  const StepTimes times{.seconds = clock_.seconds(),
                        .in_collectives_seconds = clock_.waited_in_all(),
                        .for_save_seconds = saves_->alone_seconds()};
  const std::optional<SpeedWindow> window =
      speed_watch_.add(work_of_step(world_.communicator().rank(), times, flops));
  if (!window) return;
  log_.write(hosts_event(*window, mesh_.hosts(), state_.step));
  for (const std::string& text : speed_changes(*window, mesh_.hosts())) log_.warn(text);
}

// Drops a measured peak that a step has beaten: other programs used the processors while it was measured.
void Trainer::drop_wrong_peak(double rows_per_second) {
  if (!peak_flops_ || !peak_flops_->source.starts_with("measured")) return;
  if (run_.flops_per_token().causal * rows_per_second <= peak_flops_->per_second) return;
  peak_flops_.reset();
  log_.warn(
      "a step was faster than the processors' peak, which was measured while other programs used them: there "
      "is no mfu from here on, and the mfu of the steps before was too high");
}

// Ends the run if several steps in a row have failed, because later steps would fail, too, or if the run's
// last step has failed, because such a run is not done.
void Trainer::check_numerics(const StepResult& result) {
  if (!result.skipped) skips_ = 0;
  if (is_failure(result)) {
    ++skips_;
    log_.warn(fmt::format("step {}: loss or gradient is not finite, the update was skipped on all ranks",
                          state_.step));
  }
  if (skips_ >= kSkipsInARow || (skips_ > 0 && state_.step == steps_))
    end_without_update(/*stops=*/result.sum.stop_requests > 0);
}

// Saves the state before the first failed step, unless it or a later one is saved, so that the next start
// repeats failed steps. Keeps all older checkpoints, because the weights may have gone wrong earlier.
void Trainer::end_without_update(bool stops) {
  const int64_t step = updated_.step;
  saves_->finish();
  if (step > 0 && saves_->saved_step() < step) saves_->save_now(updated_, /*keep=*/0, stops);
  std::string hint = "begin a new run with a lower optimizer.learning_rate";
  if (step > 0)
    hint += fmt::format("; {} has the weights after the last update",
                        (run_.checkpoints() / step_directory_name(saves_->saved_step())).string());
  throw Error(ExitCode::kNumerics,
              skips_ >= kSkipsInARow
                  ? fmt::format("loss or gradient was not finite in {} steps in a row, up to step {}", skips_,
                                state_.step)
                  : fmt::format("loss or gradient was not finite in the last step: there was no update after "
                                "step {} of {}",
                                step, steps_),
              hint);
}

// The planned cost of the steps and validations that this start has made so far.
StepCost Trainer::planned_cost() const {
  MemoryUse arena = at_step_ > first_step_ ? plan_.step_arena : MemoryUse{};
  if (validation_.has_evaluated() && plan_.evaluation_arena.total() > arena.total())
    arena = plan_.evaluation_arena;
  MemoryUse planned = with_arena(plan_.memory, arena);
  if (!run_.snapshot.beside_device)
    planned[MemoryCategory::kSnapshot] += kept_bytes(run_.trained_table(), mesh_.sizes(), mesh_.position(),
                                                     run_.step.adamw.moments, run_.snapshot.most_bytes);
  if (validation_.has_summarized()) planned += run_.summaries_memory;
  return {planned, plan_.traffic_per_step};
}

// `use` with the memory `arena` in place of the arena's planned capacity.
MemoryUse Trainer::with_arena(MemoryUse use, const MemoryUse& arena) const {
  for (const MemoryCategory category : kMemoryCategories)
    use[category] += arena[category] - plan_.arena[category];
  return use;
}

// The peak of this rank's ledger, with only the used part of the arena, so that an oversized plan shows.
MemoryUse Trainer::measured_memory() {
  return with_arena(ledger_.peak(), step_->arena().peak());
}

// Whether this rank wants to stop. `next_seconds`: time until the next chance to stop. Rank 0 also looks at
// the time limit, and throws if another process owns the run.
bool Trainer::stop_requested(double next_seconds) {
  if (directory_) directory_->check_owner();
  const bool requested = options_.stop_requested && options_.stop_requested();
  time_is_up_ = false;
  if (requested || !time_limit_) return requested;
  const double known = time_limit_->deadline().time;
  time_is_up_ = time_limit_->is_up(next_seconds);
  if (const Deadline& now = time_limit_->deadline(); now.time != known) {
    const std::string text = "the limit of the job was raised: " + time_limit_->text();
    if (directory_ && directory_->has_metrics())  // else the `start` event has the new end
      log_.write(WarningEvent{
          .step = state_.step, .text = text, .deadline = now.time, .deadline_source = now.source});
    log_.say(text);
  }
  return time_is_up_;
}

// Calls RunDirectory::require_progress() on rank 0; all ranks throw its error. Collective.
void Trainer::require_progress(int64_t step) {
  do_and_agree(mesh_.world(), [&] {
    if (!directory_) return;
    try {
      directory_->require_progress(step);
    } catch (const Error&) {
      has_no_progress_ = true;
      throw;
    }
  });
}

const char* Trainer::end_reason(ExitCode code) const {
  if (code == ExitCode::kRequeue) return time_is_up_ ? EndReason::kTimeLimit : EndReason::kStopRequested;
  if (has_no_progress_) return EndReason::kNoProgress;
  if (code != ExitCode::kOk) return EndReason::kError;
  return ends_early() ? EndReason::kNoImprovement : EndReason::kSteps;
}

// Writes the `end` event once. If the write throws, the next call writes it, with its own code.
void Trainer::write_end(ExitCode code) {
  MetricsFile& metrics = directory_->metrics();
  if (!end_is_logged_)
    metrics.write(EndEvent{.step = state_.step,
                           .exit_code = static_cast<int>(code),
                           .reason = end_reason(code),
                           .planned = planned_cost(),
                           .measured = {measured_memory(), clock_.sent()},
                           .resident_before_bytes = resident_before_bytes_,
                           .resident_peak_bytes = resident_memory().peak_bytes,
                           .seconds = seconds_since(begin_),
                           .account = account_.now(state_.tokens)});
  end_is_logged_ = true;
  try {
    metrics.sync();
  } catch (const Error&) {
    if (metrics.take_back()) end_is_logged_ = false;
    throw;
  }
}

void Trainer::say_end(ExitCode code) {
  const std::string& directory = run_.config.run.directory;
  if (code == ExitCode::kOk && ends_early()) log_.say(early_end_line(run_.config, state_, steps_, was_done_));
  if (was_done_ && !ends_early())
    log_.say(
        fmt::format("{} was done already: give more {} to train on, or another run.directory for a new run",
                    directory, run_.config.train.steps ? "train.steps" : "train.epochs"));
  const StepCost planned = planned_cost();
  if (!was_done_)
    log_.say(fmt::format("planned / measured: memory {} / {}, sent per step {} / {}",
                         bytes_text(planned.memory.total()), bytes_text(measured_memory().total()),
                         bytes_text(planned.traffic_per_step.sum()), bytes_text(clock_.sent().sum())));
  if (code == ExitCode::kOk) {
    if (state_.best && !ends_early()) log_.say(best_line(state_));
    for (const std::string& line : next_lines(run_.config, run_.datasets.front().header().kind))
      log_.say(line);
  }
  if (code == ExitCode::kRequeue)
    log_.say(fmt::format("stopped {} {}: run the same command again to go on", stop_cause(),
                         at_step_ > state_.step ? fmt::format("in step {}, which is made again", at_step_)
                         : state_.step == 0     ? std::string("before the first step")
                                                : fmt::format("after step {}", state_.step)));
}

// Writes the `end` event, while the lock is still held. Returns `error` with the step and with advice. Unless
// a rank is lost, waits for storage that does not answer, and makes the code kStorage if lines of the log are
// lost.
Error Trainer::end_failed(const Error& error) {
  ExitCode code = error.code();
  std::string what = error.what(), hint = error.hint();
  if (leads_) {
    std::optional<StorageWait> wait;
    if (code != ExitCode::kCommunication) wait.emplace(world_);
    const MetricsFile& metrics = directory_->metrics();
    bool owned = false;
    try {
      if (code == ExitCode::kCommunication ? directory_->may_write() : !metrics.has_given_up()) {
        directory_->check_still_owned();
        owned = true;
        write_end(error.code());
      }
    } catch (const Error& second) {
      // If another process owns the run, says so, because the other owner may have caused `error` by removing
      // files.
      if (!owned && error.code() == ExitCode::kStorage) what = second.what(), hint = second.hint();
    } catch (const std::exception&) {
    }
    if (owned && error.code() == ExitCode::kStorage)
      hint += fmt::format("{}the same command then goes on from {}", hint.empty() ? "" : "; ",
                          saves_->saved_step() > 0 ? fmt::format("step {}", saves_->saved_step())
                                                   : "the beginning, as nothing was saved yet");
    const int64_t lost = metrics.waiting_lines();
    if (lost > 0 && code != ExitCode::kCommunication && code != ExitCode::kStorage) {
      what += fmt::format("; the last {} of metrics.jsonl could not be written", counted(lost, "line"));
      code = ExitCode::kStorage;
    }
  }
  Error explained(code, what, hint);
  explained.set_step(at_step_);
  return explained;
}

}  // namespace ripstop
