#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <optional>

#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/equal_ranks.h"
#include "train/host_states.h"
#include "train/lr_schedule.h"
#include "train/machine.h"
#include "train/progress.h"
#include "train/run_data.h"
#include "train/run_directory.h"
#include "train/run_report.h"
#include "train/validation.h"

namespace ripstop {
namespace {

constexpr std::int64_t kSkipsInARow = 3;
constexpr double kSmoothing = 0.05;  // of the step time that the time left is told by

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

RunTarget run_target(const Device& device, const TokenDataset& dataset, MpiWorld& world) {
  return {.ranks = world.communicator().size(),
          .device = device.kind,
          .fast_bfloat16 = has_fast_bfloat16(device),
          .device_memory_bytes = memory_of_rank_bytes(world, device),
          .dataset_vocabulary = dataset.header().vocabulary_size};
}

Device training_device(const RunSection& run, MpiWorld& world, std::string& note) {
  Device device = choose_device(run.device, world, note);
  device.deterministic = run.deterministic;
  return device;
}

}  // namespace

class Trainer::Run {
 public:
  Run(const TrainerOptions& options, MpiWorld& world);
  ExitCode train();
  /// Says in `error` and in metrics.jsonl at which step the run ended.
  void end_failed(Error& error) noexcept;

 private:
  void check_agreement();
  void open_directory();
  void resume_or_initialize();
  void announce();
  bool take_step();
  void log_step(const LoaderStep& loaded, const StepResult& result, double rate, double data_wait);
  void check_numerics(const StepResult& result);
  bool wants_stop() const { return options_.stop_asked && options_.stop_asked(); }
  bool validation_is_due() const;
  void validate_and_save();
  bool accept_scores(const ValidationScores& scores, double seconds);
  void save();
  void write_end(ExitCode code);
  void say_end(ExitCode code);

  MemoryUse planned_memory() const;
  MemoryUse measured_memory();
  void say(const std::string& line) const {
    if (leads_ && options_.say) options_.say(line);
  }
  void warn(const std::string& text);

  TrainerOptions options_;
  MpiWorld& world_;
  const bool leads_;  ///< rank 0 of the mesh: the one that speaks and writes
  const Clock::time_point begin_ = Clock::now();
  PosixIo io_;

  Tokenizer tokenizer_;
  TokenDataset dataset_;
  std::string device_note_;
  Device device_;
  RunTarget target_;
  ResolvedRun resolved_;
  std::int64_t steps_ = 0;

  DeviceMesh mesh_;
  Validation validation_;
  Stream stream_{device_};
  MemoryLedger ledger_;
  RankPlan plan_;
  std::optional<TrainingStep> step_;
  std::optional<HostStates> states_;
  std::optional<RunDirectory> directory_;
  std::optional<CheckpointWriter> writer_;
  std::optional<BatchLoader> loader_;

  CheckpointState state_;
  std::int64_t at_step_ = 0;  ///< that is being worked on
  std::int64_t saved_step_ = -1;
  std::int64_t skips_ = 0;
  bool stopping_ = false;
  double step_seconds_ = 0;       ///< smoothed
  double step_seconds_last_ = 0;  ///< of the last step
  std::int64_t resident_before_bytes_ = 0;
  DeviceMesh::AxisTotals waited_;
  DeviceMesh::AxisBytes step_traffic_;
};

// ---- start
// --------------------------------------------------------------------------------------------------------

Trainer::Run::Run(const TrainerOptions& options, MpiWorld& world)
    : options_(options),
      world_(world),
      leads_(world.communicator().rank() == 0),
      tokenizer_(options.config.data.directory),
      dataset_(std::filesystem::path(options.config.data.directory) / "train.h5"),
      device_(training_device(options.config.run, world, device_note_)),
      target_(run_target(device_, dataset_, world)),
      resolved_(resolve_run(options.config, target_)),
      mesh_(world, resolved_.mesh, options.config.mesh.allow_tensor_across_nodes, device_),
      validation_(options_.config, resolved_, tokenizer_, mesh_) {
  if (!device_note_.empty()) resolved_.notes.push_back("run.device = \"auto\" is the CPU: " + device_note_);
  const RunConfig& config = options_.config;
  check_agreement();
  validation_.connect(world, device_);
  if (!validation_.any()) {
    resolved_.summaries.reset();
    resolved_.summaries_memory = {};
  }
  steps_ = count_steps(dataset_, config, loader_options(config, resolved_, mesh_));
  if (config.schedule.warmup_steps > steps_)
    throw Error(ExitCode::kUsage,
                fmt::format("schedule.warmup_steps {} exceeds the {} steps that train.epochs come to",
                            config.schedule.warmup_steps, steps_),
                "the rate would never be reached: warm up for a few percent of the steps");
  do_and_agree(mesh_.world(), [&] { open_directory(); });

  plan_ = plan_rank(resolved_.request(target_.device), mesh_.coordinates());
  resident_before_bytes_ = resident_memory().now_bytes;
  step_.emplace(resolved_.model, resolved_.step, mesh_, stream_, ledger_, plan_.arena);
  states_.emplace(step_->model(), step_->optimizer(), stream_);
  resume_or_initialize();
  do_and_agree(mesh_.world(), [&] {
    loader_.emplace(dataset_, loader_options(config, resolved_, mesh_),
                    DataCursor{state_.epoch, state_.pack});
  });
  const MeshCoordinates& at = mesh_.coordinates();
  writer_.emplace(io_, std::filesystem::path(config.run.directory) / "checkpoints", mesh_.world(),
                  RankPlace{.mesh = {resolved_.mesh.replicate, resolved_.mesh.fsdp, resolved_.mesh.tensor},
                            .replicate_index = at.replicate,
                            .fsdp_index = at.fsdp,
                            .tensor_index = at.tensor},
                  states_->units());
  do_and_agree(mesh_.world(), [&] { announce(); });
}

void Trainer::Run::check_agreement() {
  const std::string where = mesh_.hosts()[static_cast<std::size_t>(mesh_.position())];
  require_equal_programs(mesh_.world(), where);
  require_equal(mesh_.world(), ExitCode::kUsage, "config", to_toml(options_.config), where,
                "give every rank the same file and overrides");
  // Threads and memory differ between nodes, and with them what "auto" came to.
  require_equal(mesh_.world(), ExitCode::kResources, "micro-batch",
                fmt::format("{} packs in {}", resolved_.step.sharding.sequences,
                            dtype_name(resolved_.step.sharding.compute)),
                where, "give train.micro_batch_sequences, or use nodes of one kind");
  require_equal(mesh_.world(), ExitCode::kInputData, "data set", dataset_.content_hash(), where,
                "let every node see the same data.directory");
  require_equal(mesh_.world(), ExitCode::kInputData, "validation set", validation_.content_hash(), where,
                "let every node see the same data.directory");
}

void Trainer::Run::open_directory() {
  if (!leads_) return;
  const RunConfig& config = options_.config;
  directory_.emplace(io_, config, tokenizer_, dataset_.header().prompt_template);
  prepare_checkpoint_directory(io_, directory_->checkpoints());
  check_disk_space(io_, directory_->checkpoints(), config.checkpoint.keep,
                   checkpoint_bytes(parameter_table(resolved_.model),
                                    {resolved_.mesh.replicate, resolved_.mesh.fsdp, resolved_.mesh.tensor}));
}

void Trainer::Run::resume_or_initialize() {
  const std::string plan_hash =
      count_epoch_packs(dataset_, loader_options(options_.config, resolved_, mesh_), 0).plan_hash;
  std::vector<std::string> warnings;
  const auto accept = [&](const Checkpoint& checkpoint) {
    const CheckpointState& saved = checkpoint.manifest.state;
    if (saved.data_content_hash != dataset_.content_hash() || saved.tokenizer_sha256 != tokenizer_.sha256())
      throw Error(ExitCode::kUsage,
                  fmt::format("the data set in {} is not the one this run began with",
                              options_.config.data.directory),
                  "a new run is a new directory");
    if (!saved.validation_content_hash.empty() && saved.validation_content_hash != validation_.content_hash())
      throw Error(ExitCode::kUsage,
                  fmt::format("the validation set in {} is not the one this run began with",
                              options_.config.data.directory),
                  "a new run is a new directory");
    if (saved.step > steps_)
      throw Error(ExitCode::kUsage,
                  fmt::format("the run has done {} steps, train.steps is {}", saved.step, steps_));
    if (!saved.pack_plan_hash.empty() && saved.pack_plan_hash != plan_hash)
      throw Error(ExitCode::kStorage, "the order of the data differs from the checkpoint's",
                  "the run was begun by a version of ripstop that packs differently");
  };
  const std::optional<CheckpointState> saved =
      resume_newest(io_, std::filesystem::path(options_.config.run.directory) / "checkpoints", mesh_.world(),
                    mesh_.coordinates().fsdp, states_->units(), accept, warnings);
  if (saved) {
    state_ = *saved;
    saved_step_ = state_.step;
    states_->to_device();
    step_->model().weights_changed(step_->arena());
  } else {
    step_->model().initialize(static_cast<std::uint64_t>(options_.config.run.seed));
    state_.model = resolved_.model;
    state_.data_content_hash = dataset_.content_hash();
    state_.tokenizer_sha256 = tokenizer_.sha256();
  }
  state_.config = to_toml(options_.config);
  state_.pack_plan_hash = plan_hash;
  state_.validation_content_hash = validation_.content_hash();
  do_and_agree(mesh_.world(), [&] {
    if (!leads_) return;
    directory_->open_metrics(state_.step);
    for (const std::string& text : warnings) warn(text);
  });
}

void Trainer::Run::announce() {
  if (!leads_) return;
  const RunConfig& config = options_.config;
  for (const std::string& line : header_lines(config, resolved_, target_, mesh_, stream_.device())) say(line);
  if (loader_->cut_summaries() > 0)
    say(fmt::format("{} summaries are longer than data.sequence_length and lose their end",
                    loader_->cut_summaries()));
  for (const std::string& note : resolved_.notes) say("note: " + note);
  if (!validation_.note().empty()) say("note: " + validation_.note());
  say(fmt::format("{} {} at step {} of {}; watch {}", state_.step > 0 ? "resumes" : "begins",
                  config.run.directory, state_.step, steps_,
                  (std::filesystem::path(config.run.directory) / "metrics.jsonl").string()));
  directory_->metrics().write(start_event(config, resolved_, mesh_, options_.argv, state_.step, steps_));
  for (const std::string& note : directory_->notes()) warn(note);
}

// ---- the run
// ------------------------------------------------------------------------------------------------------

ExitCode Trainer::Run::train() {
  at_step_ = state_.step;
  if (validation_is_due()) validate_and_save();  // a stop came between step and validation
  while (state_.step < steps_ && !stopping_) {
    if (!take_step()) break;
    if (!stopping_ && validation_is_due()) validate_and_save();
    if (stopping_) break;
    const std::int64_t every = options_.config.checkpoint.every_steps;
    if (every > 0 && state_.step % every == 0 && saved_step_ != state_.step) save();
  }
  if (saved_step_ != state_.step) save();
  const bool finished = !stopping_ || (state_.step >= steps_ && !validation_is_due());
  const ExitCode code = finished ? ExitCode::kOk : ExitCode::kRequeue;
  if (leads_) {
    write_end(code);
    say_end(code);
  }
  return code;
}

/// After so many steps, and after the last one; once.
bool Trainer::Run::validation_is_due() const {
  if (!validation_.any() || state_.step == 0 || state_.validated_step == state_.step) return false;
  return state_.step == steps_ || state_.step % options_.config.train.validate_every == 0;
}

/// One optimizer step; false at the end of the data.
bool Trainer::Run::take_step() {
  const Clock::time_point begin = Clock::now();
  const DeviceMesh::AxisBytes sent = mesh_.bytes_sent();
  at_step_ = state_.step + 1;
  mesh_.set_step(at_step_);
  waited_ = mesh_.seconds_waited();
  double data_wait = 0;
  const auto waiting = [&](auto&& body) {
    const Clock::time_point since = Clock::now();
    auto&& result = body();
    data_wait += seconds_since(since);
    return result;
  };
  const std::optional<LoaderStep> loaded = waiting([&] { return loader_->next_step(); });
  if (!loaded) return false;
  const double rate = options_.config.optimizer.learning_rate *
                      learning_rate_factor(options_.config.schedule, state_.step + 1, steps_);
  const StepResult result = step_->run(
      resolved_.micro_batches,
      [&](std::int64_t) { return waiting([&] { return host_tokens(loader_->next_batch()); }); }, rate,
      state_.updates + 1, [&] { return wants_stop(); });

  state_.step += 1;
  state_.updates += result.skipped ? 0 : 1;
  state_.epoch = loaded->end.epoch;
  state_.pack = loaded->end.pack;
  state_.tokens += loaded->rows;
  stopping_ = result.stop_votes > 0;
  const DeviceMesh::AxisBytes now = mesh_.bytes_sent();
  step_traffic_ = {now.replicate - sent.replicate, now.fsdp - sent.fsdp, now.tensor - sent.tensor};
  step_seconds_last_ = seconds_since(begin);
  step_seconds_ = step_seconds_ > 0 ? (1 - kSmoothing) * step_seconds_ + kSmoothing * step_seconds_last_
                                    : step_seconds_last_;
  log_step(*loaded, result, rate, data_wait);
  check_numerics(result);
  return true;
}

void Trainer::Run::log_step(const LoaderStep& loaded, const StepResult& result, double rate,
                            double data_wait) {
  const DeviceMesh::AxisTotals waited = mesh_.seconds_waited();
  for (const std::string& note : stream_.take_notes()) warn(note);
  if (leads_) {
    const double seconds = step_seconds_last_;
    const StepMetrics metrics{.step = state_.step,
                              .tokens = loaded.rows,
                              .tokens_seen = state_.tokens,
                              .loss = result.loss,
                              .grad_norm = result.gradient_norm,
                              .learning_rate = rate,
                              .step_seconds = seconds,
                              .tokens_per_second = static_cast<double>(loaded.rows) / seconds,
                              .model_flops_utilization = std::nullopt,
                              .model_flops_utilization_full_attention = std::nullopt,
                              .peak_memory_bytes = measured_memory().total(),
                              .communication_exposed_seconds_replicate = waited.replicate - waited_.replicate,
                              .communication_exposed_seconds_fsdp = waited.fsdp - waited_.fsdp,
                              .communication_exposed_seconds_tensor = waited.tensor - waited_.tensor,
                              .data_wait_seconds = data_wait};
    directory_->metrics().write(metrics);
    const std::int64_t every = options_.config.log.every_steps;
    if (every > 0 && (state_.step % every == 0 || state_.step == steps_ || state_.step == 1))
      say(step_line(metrics, steps_, target_.device_memory_bytes,
                    step_seconds_ * static_cast<double>(steps_ - state_.step)));
  }
}

/// A step that was skipped once may be bad luck; several in a row do not mend themselves.
void Trainer::Run::check_numerics(const StepResult& result) {
  if (!result.skipped) skips_ = 0;
  if (!result.skipped || result.targets == 0) return;  // a step without targets says nothing
  ++skips_;
  warn(fmt::format("step {}: loss or gradient is not finite, the update was skipped on all ranks",
                   state_.step));
  if (skips_ >= kSkipsInARow)
    throw Error(ExitCode::kNumerics,
                fmt::format("loss or gradient was not finite in {} steps in a row, the last being step {}",
                            skips_, state_.step),
                "lower optimizer.learning_rate, or go on from an earlier checkpoint");
}

/// A new best is saved at once: "best" must name a checkpoint that is there, and it says which one is best.
/// So is a validation that came after its step's save, or it would be made again. Where a rank wants to stop,
/// the time that is left is for the save, and the validation is made when the run goes on.
void Trainer::Run::validate_and_save() {
  const Clock::time_point begin = Clock::now();
  const bool late = saved_step_ == state_.step;
  const std::optional<ValidationScores> scores =
      validation_.measure(*step_, ledger_, [&] { return wants_stop(); });
  stopping_ = !scores;
  if (stopping_) return;
  const bool better = accept_scores(*scores, seconds_since(begin));
  if (better || late) save();
}

/// Records the scores; true where they are the best so far and such checkpoints are kept.
bool Trainer::Run::accept_scores(const ValidationScores& scores, double seconds) {
  const KeepBest keep = options_.config.checkpoint.keep_best;
  const double loss = scores.loss.mean();
  const bool by_rouge = keep == KeepBest::kRougeL;
  const double value = by_rouge ? scores.rouge->rouge_l.fmeasure : loss;
  const auto beats = [&](const BestSoFar& best) {
    return best.metric != to_string(keep) || (by_rouge ? value > best.value : value < best.value);
  };
  const bool better = keep != KeepBest::kNone && scores.loss.targets > 0 && std::isfinite(value) &&
                      (!state_.best || beats(*state_.best));
  if (better)
    state_.best = BestSoFar{.metric = std::string(to_string(keep)), .value = value, .step = state_.step};
  state_.validated_step = state_.step;
  if (!leads_) return better;

  ValidationEvent event;
  event.step = state_.step;
  event.loss = loss;
  event.targets = static_cast<std::int64_t>(scores.loss.targets);
  event.seconds = seconds;
  event.best = better;
  std::string rouge;
  if (scores.rouge) {
    event.rouge1 = scores.rouge->rouge1.fmeasure;
    event.rouge2 = scores.rouge->rouge2.fmeasure;
    event.rougeL = scores.rouge->rouge_l.fmeasure;
    rouge = fmt::format("  rouge1 {:.2f}  rouge2 {:.2f}  rougeL {:.2f}", 100 * *event.rouge1,
                        100 * *event.rouge2, 100 * *event.rougeL);
  }
  directory_->metrics().write(event);
  say(fmt::format("validation at step {}  loss {:.4f}  perplexity {:.2f}  {} targets{}  {:.1f}s{}",
                  state_.step, loss, std::exp(loss), event.targets, rouge, event.seconds,
                  better ? "  best" : ""));
  return better;
}

void Trainer::Run::save() {
  const Clock::time_point begin = Clock::now();
  do_and_agree(mesh_.world(), [&] {
    if (!leads_) return;
    directory_->lock().check_still_owned();
    directory_->metrics().sync();
  });
  states_->to_host();
  const SaveReport report = writer_->save(
      state_, {.keep = options_.config.checkpoint.keep, .lock = leads_ ? &directory_->lock() : nullptr});
  saved_step_ = state_.step;
  if (!leads_) return;
  for (const std::string& text : report.warnings) warn(text);
  const double seconds = seconds_since(begin);
  directory_->metrics().write(CheckpointEvent{
      .step = state_.step, .path = report.directory.string(), .bytes = report.bytes, .seconds = seconds});
  say(fmt::format("checkpoint {}  {}  {:.1f}s", report.directory.string(), bytes_text(report.bytes),
                  seconds));
}

MemoryUse Trainer::Run::planned_memory() const {
  MemoryUse planned = plan_.memory;
  return planned += resolved_.summaries_memory;
}

/// Everything ripstop has allocated on the device at most: buffers, and of the arena what was really used.
MemoryUse Trainer::Run::measured_memory() {
  MemoryUse use = ledger_.peak();
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    use[category] += step_->arena().peak()[category] - plan_.arena[category];
  }
  return use;
}

void Trainer::Run::write_end(ExitCode code) {
  directory_->metrics().write(EndEvent{.step = state_.step,
                                       .exit_code = static_cast<int>(code),
                                       .planned = step_cost(planned_memory(), plan_.traffic_per_step),
                                       .measured = step_cost(measured_memory(), step_traffic_),
                                       .resident_before_bytes = resident_before_bytes_,
                                       .resident_peak_bytes = resident_memory().peak_bytes,
                                       .seconds = seconds_since(begin_)});
  directory_->metrics().sync();
}

void Trainer::Run::say_end(ExitCode code) {
  const auto traffic = [](const DeviceMesh::AxisBytes& t) { return t.replicate + t.fsdp + t.tensor; };
  say(fmt::format("planned / measured: memory {} / {}, sent per step {} / {}",
                  bytes_text(planned_memory().total()), bytes_text(measured_memory().total()),
                  bytes_text(traffic(plan_.traffic_per_step)), bytes_text(traffic(step_traffic_))));
  if (code == ExitCode::kRequeue)
    say(fmt::format("stopped on a signal after step {}: run the same command again to go on", state_.step));
}

void Trainer::Run::end_failed(Error& error) noexcept {
  error.set_step(at_step_);
  if (!leads_) return;
  try {
    directory_->lock().check_still_owned();
    write_end(error.code());
  } catch (const std::exception&) {  // a full disk, or another owner: `error` says it
  }
}

void Trainer::Run::warn(const std::string& text) {
  if (!leads_) return;
  directory_->metrics().write(WarningEvent{.step = state_.step, .text = text});
  say("warning: " + text);
}

Trainer::Trainer(const TrainerOptions& options, MpiWorld& world)
    : run_(std::make_unique<Run>(options, world)) {}
Trainer::~Trainer() = default;
ExitCode Trainer::run() {
  try {
    return run_->train();
  } catch (Error& error) {
    run_->end_failed(error);
    throw;
  }
}

}  // namespace ripstop
