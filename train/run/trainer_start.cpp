#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "model/device/cuda_machine.h"
#include "model/kernels/cpu/processor.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/config/config_keys.h"
#include "train/machine/machine.h"
#include "train/machine/version.h"
#include "train/plan/micro_batch.h"
#include "train/plan/plan_text.h"
#include "train/plan/run_length.h"
#include "train/plan/training_data.h"
#include "train/report/human_text.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

// Seconds of the run's last save, else assumed_save_seconds().
double seconds_of_save(const DecidedRun& run, int64_t bytes) {
  double seconds = assumed_save_seconds(bytes);
  if (std::filesystem::exists(run.metrics_file()))
    for (const CheckpointEvent& saved : read_log_ends(run.metrics_file(), {}).checkpoints)
      seconds = saved.seconds;
  return seconds;
}

}  // namespace

// Prepares the first step. Returns false if a stop was requested; between parts, the ranks agree on whether
// to stop.
bool Trainer::start() {
  if (agree_to_stop()) return false;
  enter(&StartupSeconds::mpi);
  validation_.connect(world_, run_.device);
  enter(&StartupSeconds::data);
  StartFindings found;
  found.notes = run_.notes;
  require_targets(run_.datasets, run_.config);
  std::ranges::move(data_notes(run_.datasets, run_.config), std::back_inserter(found.notes));
  std::optional<RunLength> length = count_steps();
  if (!length) return false;
  found.length = std::move(*length);
  enter(&StartupSeconds::weights);
  FirstWeights first = open_first_weights(found.notes);
  enter(&StartupSeconds::resume);
  do_on_rank_0(mesh_.world(), [&] {
    open_directory();
    if (!options_.deadline) return;
    time_limit_.emplace(*options_.deadline, seconds_of_save(run_, found.length.checkpoint_bytes));
  });
  enter(&StartupSeconds::memory);
  plan_ = plan_rank(run_.request(run_.target.device), mesh_.coordinates());
  // Measures the peak FLOP/s before the step allocates, because measuring takes memory outside the plan.
  peak_flops_ = find_peak_flops(world_, run_.device, run_.step.sharding.compute);
  if (!peak_flops_ && run_.device.kind == DeviceKind::kCpu)
    found.notes.emplace_back(
        "other programs keep the processors busy: their peak could not be measured, so there is no mfu");
  resident_before_bytes_ = resident_memory().now_bytes;
  run_.library_memory.check_room(run_.memory().total());
  step_.emplace(run_.model, run_.step, mesh_, stream_, ledger_, plan_.arena);
  enter(&StartupSeconds::resume);
  if (agree_to_stop() || !resume_or_initialize(std::move(first), found)) return false;
  if (const int64_t last = parse_step_range(run_.config.run.profile_steps).last; last > steps_)
    found.notes.push_back(
        fmt::format("run.profile_steps ends at step {}, train.epochs come to {} steps", last, steps_));
  find_start_scores(found.log);
  enter(&StartupSeconds::data);
  do_and_agree(mesh_.world(), [&] {
    loader_.emplace(run_.datasets, loader_options(run_.config, run_, mesh_), state_.cursor);
  });
  enter(&StartupSeconds::other);
  saves_.emplace(SavedRun{.run = run_,
                          .log = log_,
                          .directory = directory_,
                          .time_limit = time_limit_,
                          .deadline = deadline_,
                          .states = {&state_, &updated_},
                          .recorder = trace_.recorder(),
                          .state_is_unsaved = continues_},
                 stream_, ledger_, live_states(step_->model(), step_->optimizer()), state_);
  was_done_ = is_done();
  if (!was_done_) do_and_agree(mesh_.world(), [&] { found.kernel_plans = prepare_kernels(); });
  account_.gather();
  do_on_rank_0(mesh_.world(), [&] { announce(found); });
  return true;
}

// Collective.
bool Trainer::agree_to_stop() {
  return any_rank(mesh_.world(), stop_requested(0));
}

// Ends a run that was stopped before its first step. In a Slurm job, or if the directory is open, this start
// counts as a takeover, so that a job too short for the start does not restart without end. Collective.
void Trainer::end_start() {
  do_on_rank_0(mesh_.world(), [&] {
    if (directory_ || !Takeovers::is_in_job()) return;
    try {
      open_directory();
    } catch (const Error& error) {
      // kRequeue: a stop request ended the wait for another owner.
      if (error.code() != ExitCode::kRequeue) throw;
      directory_.reset();
    }
  });
  const bool has_directory = all_ranks(mesh_.world(), !leads_ || directory_);
  if (has_directory) {
    const int64_t newest = directory_ ? directory_->newest_step() : 0;
    do_on_rank_0(mesh_.world(), [&] { directory_->take_over(newest); });
    require_progress(newest);
  }
  log_.say(
      fmt::format("stopped {} before the first step: nothing was trained and nothing is lost; run the same "
                  "command again",
                  stop_cause()));
}

// Counts the run from step 0; check_resumable() counts it from a checkpoint. Returns nullopt if a stop was
// requested meanwhile. Collective.
std::optional<RunLength> Trainer::count_steps() {
  // A stop ends the count: a million epochs take hours. But a vote takes longer than a small epoch.
  constexpr int64_t kEpochsAVote = 16;
  int64_t epochs = 0;
  const std::optional<TrainingData> data = count_training_data(
      run_.datasets, run_.config, [&] { return ++epochs % kEpochsAVote != 0 || !agree_to_stop(); });
  if (!data) return std::nullopt;
  steps_ = data->steps;
  return run_length(run_.config, run_, data);
}

// Takes the lock and checks the disk. On rank 0.
void Trainer::open_directory() {
  directory_.emplace(posix_io(), run_.config, run_.tokenizer, run_.datasets.front().header().prompt_template,
                     RunLockWait{.say = [this](const std::string& text) { log_.say(text); },
                                 .stop_requested = [this] { return stop_requested(0); }},
                     options_.allow_changes);
  directory_->prepare_checkpoints();
  directory_->require_progress(directory_->newest_step());
  check_disk_space(posix_io(), directory_->checkpoints(), kept_checkpoints(run_.config, run_),
                   checkpoint_bytes(run_.trained_table(), run_.mesh, run_.step.adamw.moments));
}

// Refuses a checkpoint with which this run cannot go on, and counts the run from there.
ResumableCheckpoint Trainer::check_resumable(const Checkpoint& checkpoint, StartFindings& found) {
  TrainingData& data = *found.length.data;
  ResumableCheckpoint saved = ripstop::check_resumable(checkpoint,
                                                       {.config = run_.config,
                                                        .model = run_.model,
                                                        .datasets = run_.datasets,
                                                        .validation = content_hashes(run_.validation),
                                                        .allow_changes = options_.allow_changes,
                                                        .continues = continues_},
                                                       &data);
  check_same_parameters(checkpoint.manifest.units, run_.trained_table());
  found.length = run_length(run_.config, run_, data);
  steps_ = data.steps;
  return saved;
}

// Reads weights and moments. Not collective.
void Trainer::load(const Checkpoint& checkpoint) {
  CheckpointReader reader(posix_io(), checkpoint);
  load_states(live_states(step_->model(), step_->optimizer()), stream_,
              [&](const std::vector<UnitStates>& units) { reader.read(mesh_.coordinates().fsdp, units); });
}

// Fills weights, moments and state_ from the checkpoint that run.continue_from names; its run may be running.
// Returns nullopt if run_.continued is empty. Collective.
std::optional<ResumableCheckpoint> Trainer::continue_run(StartFindings& found) {
  if (run_.continued.empty()) return std::nullopt;
  continues_ = true;
  std::optional<ResumableCheckpoint> resumed;
  log_.show("reading " + run_.continued.string());
  do_and_agree(mesh_.world(), [&] {
    try {
      const Checkpoint checkpoint{run_.continued, read_manifest(posix_io(), run_.continued)};
      resumed = check_resumable(checkpoint, found);
      load(checkpoint);
      state_ = checkpoint.manifest.state;
    } catch (const Error& given) {
      const Error error =
          with_hint_for_damage(given, run_.continued, "run.continue_from=RUN/checkpoints/step_N");
      throw Error(error.code(), fmt::format("run.continue_from: {}", error.what()), error.hint());
    }
  });
  std::erase_if(resumed->differences, [](const ConfigDifference& each) {
    return each.key == "run.directory" || each.key == "run.continue_from";
  });
  // Drops the scores, which are of checkpoints in the other run's directory.
  state_.best.reset();
  state_.validated_step = state_.validations_since_best = 0;
  state_.validation_content_hash.clear();
  return resumed;
}

// Fills weights, moments and state_ from the run's newest whole checkpoint, else by continue_run(). Returns
// nullopt if there is neither. Collective.
std::optional<ResumableCheckpoint> Trainer::resume(StartFindings& found) {
  std::optional<ResumableCheckpoint> resumed;
  log_.show("looking for a checkpoint of " + run_.config.run.directory);
  const std::optional<CheckpointState> saved = resume_newest(
      posix_io(), run_.checkpoints(), mesh_.world(),
      [&](const Checkpoint& checkpoint) { resumed = check_resumable(checkpoint, found); },
      [&](const Checkpoint& checkpoint) { load(checkpoint); }, found.warnings);
  if (saved)
    state_ = *saved;
  else
    resumed = continue_run(found);
  // Scores with other data.weights or of other sets are another metric.
  if (saved && !validates_like(*saved)) {
    state_.best.reset();
    state_.validations_since_best = 0;
  }
  if (!resumed) {
    // Counts from step 0, because no checkpoint was loaded.
    TrainingData data = *found.length.data;
    count_run(data, run_.datasets, run_.config, {});
    found.length = run_length(run_.config, run_, data);
    steps_ = data.steps;
    return std::nullopt;
  }
  // A checkpoint has the float32 masters, not the compute copies, so these must be renewed.
  step_->model().weights_changed(step_->arena());
  found.changes = resumed->changes();
  found.resume_notes = resume_notes(*resumed, mesh_.sizes(), state_.step);
  if (std::string jump = rate_jump(resumed->config, run_.config, state_.step, resumed->steps, steps_);
      !jump.empty())
    found.resume_notes.push_back(std::move(jump));
  return resumed;
}

// Resumes, or begins with `first`. Returns false if a stop was requested meanwhile. Collective.
bool Trainer::resume_or_initialize(FirstWeights first, StartFindings& found) {
  const std::optional<ResumableCheckpoint> resumed = resume(found);
  if (!resumed) {
    enter(&StartupSeconds::weights);
    found.weights_of = set_first_weights(first);
    enter(&StartupSeconds::resume);
    state_.model = run_.model;
    state_.data_content_hash = content_hashes(run_.datasets);
    state_.tokenizer_sha256 = run_.tokenizer.sha256();
  }
  bool stopped = false;
  if (has_adapters() && !is_done()) {
    enter(&StartupSeconds::weights);
    const std::optional<std::string> source = read_base(std::move(first), resumed);
    stopped = !source;
    found.weights_of = source.value_or("");
    enter(&StartupSeconds::resume);
  }
  state_.config = to_toml(run_.config);
  state_.pack_plan_hash = found.length.data->plan_hash;
  // A run that stops validating keeps the hash of the set that its scores belong to.
  if (validation_.any() || state_.validation_content_hash.empty())
    state_.validation_content_hash = content_hashes(run_.validation);
  log_.end_live_line();
  if (stopped || agree_to_stop()) {
    for (const std::string& text : found.warnings) log_.say("warning: " + text);
    return false;
  }
  // The takeover is recorded after the checks that may refuse the run. A run that is done commits nothing, so
  // its start is no takeover, unless it must store changes. With continues_, the new config has the changes.
  state_.takeover = 0;
  // Rank 0 decides, because each rank has read a file that another start may be replacing.
  if (of_rank_0(mesh_.world(), !is_done() || !found.changes.empty()))
    state_.takeover = from_rank_0(mesh_.world(), [&] {
      return continues_ ? directory_->take_over(0) : directory_->take_over(state_.step, found.changes);
    });
  do_on_rank_0(mesh_.world(), [&] {
    const std::filesystem::path metrics = run_.metrics_file();
    account_.resume(metrics, state_.tokens, state_.step == 0 || continues_);
    directory_->open_metrics(state_.step, continues_);
    found.log = read_log_ends(metrics, last_takeover_steps(posix_io(), metrics.parent_path()));
    for (const std::string& text : found.warnings) log_.warn(text);
  });
  return true;
}

// Makes cuDNN's plans of attention for the documents of the next kStepsLookedAt steps and of validations. A
// plan takes up to a second: during steps, ranks would make plans at different times and wait for each other.
std::optional<KernelPlans> Trainer::prepare_kernels() {
  if (run_.device.kind != DeviceKind::kCuda) return std::nullopt;
  log_.show("making plans of attention");
  const DocumentCounts trained = coming_documents(run_.datasets, loader_options(run_.config, run_, mesh_),
                                                  state_.cursor, kStepsLookedAt);
  const KernelPlans plans = ripstop::prepare_kernels(step_->model(), trained, validation_.documents());
  log_.end_live_line();
  return plans;
}

void Trainer::say_header(const StartFindings& found, const StartEvent& event) {
  const RunConfig& config = run_.config;
  ResolvedRun run = run_;
  run.snapshot = saves_->plan();
  RunLength length = found.length;
  // The header's speed is that of earlier steps if the run resumes, else, on a GPU, by its data sheet.
  if (state_.step > 0)
    length.speed = measured_speed(found.log, run, run_.target);
  else if (run_.target.device == DeviceKind::kCuda)
    add_planned_time(run_.target, look_at_cuda().gpus.at(static_cast<size_t>(run_.device.index)).name, run,
                     length);
  log_.say(fmt::format("ripstop {} ({})  {}  {}", version(), git_commit(), to_string(run_.device),
                       cpu_instruction_set()));
  log_.say(mesh_.describe());
  log_.say(
      fmt::format("model: {}, computing in {}", parameters_text(run), to_string(run.step.sharding.compute)));
  log_.say(fmt::format("step: {} of {} tokens; {}", counted(config.train.global_batch_sequences, "sequence"),
                       config.data.sequence_length, micro_batches_text(config, run)));
  if (run.step.sharding.recompute != Recompute::kNone)
    log_.say(fmt::format("recompute: {}", recompute_text(run)));
  if (run.mesh.pipeline > 1)
    log_.say(fmt::format("pipeline: stages of {} layers, {:.1f}% idle; units {}",
                         fmt::join(event.pipeline_layers, ", "), 100 * run.pipeline_idle_share,
                         units_text(run.step.sharding.reshard_after_forward)));
  for (const LengthLine& line : length_lines(config, length))
    log_.say(fmt::format("{}: {}", line.name, line.text));
  log_.say(fmt::format("plan for the fullest rank:\n{}", plan_text(run, run_.target.device_memory_bytes)));
  if (state_.step > 0)
    for (const std::string& line : lines_since(found.log, event, config, run)) log_.say(line);
  if (continues_)
    log_.say(
        fmt::format("continues {}: its weights, moments and place in the data", run_.continued.string()));
  if (!found.weights_of.empty()) log_.say("weights of " + found.weights_of);
  if (const auto& plans = found.kernel_plans; plans && plans->count > 0)
    log_.say(fmt::format("{} of attention made in {:.1f} s{}", counted(plans->count, "plan"), plans->seconds,
                         plans->left > 0 ? ", others when they are needed" : ""));
  for (const auto& notes : {options_.notes, found.notes})
    for (const std::string& note : notes) log_.say("note: " + note);
  if (const std::string note = validation_note(run_.config, run_.validation); !note.empty())
    log_.say("note: " + note);
  if (time_limit_) log_.say("time limit: " + time_limit_->text());
  log_.say(startup_text(options_.start_times.seconds()));
  log_.say(fmt::format("{} {} at step {} of {}; watch {}",
                       state_.step > 0 && !continues_ ? "resumes" : "begins", config.run.directory,
                       state_.step, steps_, run_.metrics_file().string()));
}

StartEvent Trainer::start_event(const StartFindings& found) const {
  const FlopsPerToken flops = run_.flops_per_token();
  const TrainingData& data = *found.length.data;
  StartEvent event;
  event.step = state_.step;
  event.steps = steps_;
  event.tokens_seen = state_.tokens;
  event.argv = options_.argv;
  event.version = std::string(version());
  event.git_commit = std::string(git_commit());
  event.mesh = run_.mesh;
  event.hosts = mesh_.hosts();
  if (run_.mesh.pipeline > 1) event.pipeline_layers = run_.step.sharding.stage_layers;
  event.recompute = std::string(to_string(run_.step.sharding.recompute));
  event.reshard_after_forward = run_.step.sharding.reshard_after_forward;
  event.micro_batch_sequences = run_.step.sharding.sequence_count;
  event.micro_batches = run_.micro_batches;
  event.data = {data, std::string(to_string(data.kind))};
  event.checkpoint_bytes = found.length.checkpoint_bytes;
  event.parameters = parameter_count(run_.model);
  event.trained_parameters = run_.trained_parameters();
  event.flops_per_token = flops.causal;
  event.flops_per_token_full_attention = flops.full_attention;
  event.flops_formula = fmt::format("{0} + 6 L H D T (causal), {0} + 12 L H D T (full attention)",
                                    has_adapters() ? "4 P + 6 A" : "6 P");
  if (peak_flops_) {
    event.peak_flops_per_second = peak_flops_->per_second;
    event.peak_flops_source = peak_flops_->source;
  } else if (run_.device.kind == DeviceKind::kCpu) {
    event.peak_flops_source = kNoCpuPeak;  // also tells measured_speed that the run was on CPUs
  }
  event.plan = {run_.memory(), run_.plan.traffic_per_step};
  if (found.kernel_plans) {
    event.kernel_plans = found.kernel_plans->count;
    event.kernel_plans_seconds = found.kernel_plans->seconds;
  }
  event.takeover = state_.takeover;
  if (continues_) event.continued_from = run_.continued.string();
  event.changes = found.changes;
  if (time_limit_) {
    event.deadline = time_limit_->deadline().time;
    event.deadline_source = time_limit_->deadline().source;
  }
  return event;
}

// A run that is done has no header.
void Trainer::announce(const StartFindings& found) {
  StartEvent event = start_event(found);
  if (!was_done_) say_header(found, event);
  event.startup = options_.start_times.seconds();
  event.account = account_.now(state_.tokens);
  directory_->metrics().write(event);
  std::vector<std::string> notes = directory_->notes();
  // A resume note may repeat a note of the directory and add an effect. Then it replaces that note.
  for (const std::string& note : found.resume_notes) {
    const auto same = std::find_if(notes.begin(), notes.end(), [&](const std::string& change) {
      return note == change || note.starts_with(change + ", ");
    });
    if (same == notes.end())
      notes.push_back(note);
    else
      *same = note;
  }
  for (const std::string& note : notes) log_.warn(note);
  // Replays earlier steps in the watch. Earlier starts have told their notes.
  for (const StepMetrics& step : found.log.steps)
    loss_watch_.add(step.step, step.loss, step.grad_norm, [](const std::string&) {});
}

}  // namespace ripstop
