#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <optional>

#include "data/batch_loader.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "model/kernels/cpu/processor.h"
#include "parallel/start_up.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/checkpoint_writer.h"
#include "train/lr_schedule.h"
#include "train/machine.h"
#include "train/progress.h"
#include "train/resolved_run.h"
#include "train/run_directory.h"
#include "train/version.h"

namespace ripstop {
namespace {

constexpr std::int64_t kSkipsInARow = 3;
constexpr double kSmoothing = 0.05;  // of the step time that the time left is told by

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

MemoryBytes to_bytes(const MemoryUse& use) {
  return {.weights = use[MemoryCategory::kWeights],
          .gradients = use[MemoryCategory::kGradients],
          .optimizer = use[MemoryCategory::kOptimizer],
          .activations = use[MemoryCategory::kActivations],
          .communication = use[MemoryCategory::kCommunication],
          .workspace = use[MemoryCategory::kWorkspace],
          .total = use.total()};
}

StepCost to_cost(const MemoryUse& memory, const DeviceMesh::AxisBytes& traffic) {
  return {
      .memory = to_bytes(memory),
      .traffic_per_step = {.replicate = traffic.replicate, .fsdp = traffic.fsdp, .tensor = traffic.tensor}};
}

HostTokens host_tokens(const PackedBatch& batch) {
  return {batch.tokens, batch.position, batch.targets, batch.document_offset};
}

BatchLoaderOptions loader_options(const RunConfig& config, const ResolvedRun& run, const DeviceMesh& mesh) {
  return {.sequence_length = config.data.sequence_length,
          .pack = config.data.pack,
          .loss_on = config.data.loss_on,
          .shuffle_seed = static_cast<std::uint64_t>(config.data.shuffle_seed),
          .global_batch_sequences = config.train.global_batch_sequences,
          .micro_batch_sequences = run.step.sharding.sequences,
          .data_rank = mesh.data_rank(),
          .data_ranks = mesh.data_ranks(),
          .epochs = config.train.epochs.value_or(0)};
}

/// Steps of a run of so many epochs: packs differ from epoch to epoch, as each is packed in its own order.
std::int64_t count_steps(const TokenDataset& dataset, const RunConfig& config, BatchLoaderOptions options) {
  if (config.train.steps) return *config.train.steps;
  std::int64_t packs = 0;
  for (std::int64_t epoch = 0; epoch < *config.train.epochs; ++epoch)
    packs += BatchLoader(dataset, options, {.epoch = epoch}).packs_per_epoch();
  return (packs + options.global_batch_sequences - 1) / options.global_batch_sequences;
}

/// Every rank looks at its own machine; the memory is the least of all, as it decides the micro-batch, which
/// must be the same everywhere.
RunTarget run_target(const RunConfig& config, const TokenDataset& dataset, MpiWorld& world) {
  if (config.run.device == DeviceChoice::kCuda) cuda_device();  // throws where CUDA is not built in
  std::int64_t ranks_here = 0;
  const std::vector<RankHost>& places = world.places();
  const std::int64_t own = places[static_cast<std::size_t>(world.communicator().rank())].node;
  for (const RankHost& place : places) ranks_here += place.node == own;
  const Machine machine = look_at_machine();
  return {.ranks = world.communicator().size(),
          .device = DeviceKind::kCpu,
          .fast_bfloat16 = machine.fast_bfloat16,
          .device_memory_bytes =
              least_of_all_ranks(world.communicator(), usable_memory_bytes(machine) / ranks_here),
          .dataset_vocabulary = dataset.header().vocabulary_size};
}

}  // namespace

class Trainer::Run {
 public:
  Run(const TrainerOptions& options, MpiWorld& world);
  ExitCode train();

 private:
  void open_validation();
  void check_agreement();
  void open_directory();
  void resume_or_initialize();
  void say_header() const;
  void write_start();
  bool take_step();
  void log_step(const LoaderStep& loaded, const StepResult& result, double rate, double data_wait);
  void check_numerics(const StepResult& result);
  bool validate();
  void save();
  void end(ExitCode code);

  std::vector<UnitStates> unit_states();
  MemoryUse measured_memory();
  void say(const std::string& line) const {
    if (leads_ && options_.say) options_.say(line);
  }
  void warn(const std::string& text);
  bool validates() const { return validation_.has_value(); }

  TrainerOptions options_;
  MpiWorld& world_;
  const bool leads_;  ///< rank 0 of the mesh: the one that speaks and writes
  const Clock::time_point begin_ = Clock::now();
  PosixIo io_;

  Tokenizer tokenizer_;
  TokenDataset dataset_;
  std::optional<TokenDataset> validation_;
  RunTarget target_;
  ResolvedRun resolved_;
  std::int64_t steps_ = 0;

  DeviceMesh mesh_;
  Stream stream_{Device::cpu()};
  MemoryLedger ledger_;
  RankPlan plan_;
  std::optional<TrainingStep> step_;
  std::optional<RunDirectory> directory_;
  std::optional<CheckpointWriter> writer_;
  std::optional<BatchLoader> loader_;

  CheckpointState state_;
  std::int64_t saved_step_ = -1;
  std::int64_t skips_ = 0;
  bool stopping_ = false;
  double step_seconds_ = 0;       ///< smoothed
  double step_seconds_last_ = 0;  ///< of the last step
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
      target_(run_target(options.config, dataset_, world)),
      resolved_(resolve_run(options.config, target_)),
      mesh_(world, resolved_.mesh, options.config.mesh.allow_tensor_across_nodes) {
  const RunConfig& config = options_.config;
  if (tokenizer_.sha256() != dataset_.header().tokenizer_sha256)
    throw Error(ExitCode::kInputData,
                fmt::format("{}/tokenizer.model is not the tokenizer that {} was made with",
                            config.data.directory, dataset_.path().string()),
                "prepare the data set again");
  do_and_agree(mesh_.world(), [&] { open_validation(); });
  check_agreement();
  steps_ = count_steps(dataset_, config, loader_options(config, resolved_, mesh_));
  do_and_agree(mesh_.world(), [&] { open_directory(); });

  plan_ = plan_rank(resolved_.request(target_.device), mesh_.coordinates());
  step_.emplace(resolved_.model, resolved_.step, mesh_, stream_, ledger_, plan_.arena);
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
                  unit_states());
  say_header();
  do_and_agree(mesh_.world(), [&] { write_start(); });
}

/// `prepare` writes the set even where no example is in it: then there is nothing to validate on.
void Trainer::Run::open_validation() {
  if (options_.config.train.validate_every == 0) return;
  const std::filesystem::path file = std::filesystem::path(options_.config.data.directory) / "validation.h5";
  if (std::filesystem::exists(file)) validation_.emplace(file);
  if (validation_ && validation_->header().tokenizer_sha256 != dataset_.header().tokenizer_sha256)
    throw Error(
        ExitCode::kInputData,
        fmt::format("{} was made with another tokenizer than {}", file.string(), dataset_.path().string()),
        "prepare the data set again");
  if (validation_ && validation_->examples() > 0) return;
  validation_.reset();
  resolved_.notes.push_back(
      fmt::format("train.validate_every: {} has no examples, nothing is validated", file.string()));
}

void Trainer::Run::check_agreement() {
  const std::string where = mesh_.hosts()[static_cast<std::size_t>(mesh_.position())];
  require_equal(mesh_.world(), ExitCode::kResources, "program", fmt::format("{} {}", version(), git_commit()),
                where, "start the same build on every node");
  require_equal(mesh_.world(), ExitCode::kUsage, "config", to_toml(options_.config), where,
                "give every rank the same file and overrides");
  require_equal(mesh_.world(), ExitCode::kResources, "instruction set", cpu_instruction_set(), where,
                "use nodes of one kind");
  // Threads and memory differ between nodes, and with them what "auto" came to.
  require_equal(mesh_.world(), ExitCode::kResources, "micro-batch",
                fmt::format("{} packs in {}", resolved_.step.sharding.sequences,
                            dtype_name(resolved_.step.sharding.compute)),
                where, "give train.micro_batch_sequences, or use nodes of one kind");
  require_equal(mesh_.world(), ExitCode::kInputData, "data set", dataset_.content_hash(), where,
                "let every node see the same data.directory");
  require_equal(mesh_.world(), ExitCode::kInputData, "validation set",
                validation_ ? validation_->content_hash() : "none", where,
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
      BatchLoader(dataset_, loader_options(options_.config, resolved_, mesh_)).plan_hash();
  const auto accept = [&](const Checkpoint& checkpoint) {
    const CheckpointState& saved = checkpoint.manifest.state;
    if (saved.data_content_hash != dataset_.content_hash() || saved.tokenizer_sha256 != tokenizer_.sha256())
      throw Error(ExitCode::kUsage,
                  fmt::format("the data set in {} is not the one this run began with",
                              options_.config.data.directory),
                  "a new run is a new directory");
    if (saved.step > steps_)
      throw Error(ExitCode::kUsage,
                  fmt::format("the run has done {} steps, train.steps is {}", saved.step, steps_));
    if (!saved.pack_plan_hash.empty() && saved.pack_plan_hash != plan_hash)
      throw Error(ExitCode::kStorage, "the order of the data differs from the checkpoint's",
                  "the run was begun by a version of ripstop that packs differently");
  };
  std::vector<std::string> warnings;
  const std::optional<CheckpointState> saved =
      resume_newest(io_, std::filesystem::path(options_.config.run.directory) / "checkpoints", mesh_.world(),
                    mesh_.coordinates().fsdp, unit_states(), accept, warnings);
  if (saved) {
    state_ = *saved;
    saved_step_ = state_.step;
    step_->model().weights_changed(step_->arena());
  } else {
    step_->model().initialize(step_->arena(), static_cast<std::uint64_t>(options_.config.run.seed));
    state_.model = resolved_.model;
    state_.data_content_hash = dataset_.content_hash();
    state_.tokenizer_sha256 = tokenizer_.sha256();
  }
  state_.config = to_toml(options_.config);
  state_.pack_plan_hash = plan_hash;
  do_and_agree(mesh_.world(), [&] {
    if (!leads_) return;
    directory_->open_metrics(state_.step);
    for (const std::string& text : warnings) warn(text);
  });
}

void Trainer::Run::say_header() const {
  if (!leads_) return;
  const RunConfig& config = options_.config;
  say(fmt::format("ripstop {} ({})  {}  {}", version(), git_commit(), device_name(stream_.device()),
                  cpu_instruction_set()));
  say(mesh_.describe());
  const std::int64_t parameters = parameter_count(resolved_.model);
  say(fmt::format("model: {} parameters, computing in {}", parameters,
                  dtype_name(resolved_.step.sharding.compute)));
  say(fmt::format("step: {} packs of {} tokens; {} micro-batches of {} on each of {} data ranks{}",
                  config.train.global_batch_sequences, config.data.sequence_length, resolved_.micro_batches,
                  resolved_.step.sharding.sequences, mesh_.data_ranks(),
                  resolved_.idle_share > 0 ? fmt::format(", {:.1f}% idle", 100 * resolved_.idle_share) : ""));
  say(fmt::format("plan for the fullest rank:\n{}", plan_text(resolved_.plan, target_.device_memory_bytes)));
  if (loader_->cut_summaries() > 0)
    say(fmt::format("{} summaries are longer than data.sequence_length and lose their end",
                    loader_->cut_summaries()));
  for (const std::string& note : resolved_.notes) say("note: " + note);
  for (const std::string& note : directory_->notes()) say("note: " + note);
  say(fmt::format("{} {} at step {} of {}; watch {}", state_.step > 0 ? "resumes" : "begins",
                  config.run.directory, state_.step, steps_,
                  (std::filesystem::path(config.run.directory) / "metrics.jsonl").string()));
}

void Trainer::Run::write_start() {
  if (!leads_) return;
  const FlopsPerToken flops = training_flops_per_token(resolved_.model, options_.config.data.sequence_length);
  directory_->metrics().write(
      StartEvent{.step = state_.step,
                 .steps = steps_,
                 .argv = options_.argv,
                 .version = std::string(version()),
                 .git_commit = std::string(git_commit()),
                 .replicate = resolved_.mesh.replicate,
                 .fsdp = resolved_.mesh.fsdp,
                 .tensor = resolved_.mesh.tensor,
                 .hosts = mesh_.hosts(),
                 .parameters = parameter_count(resolved_.model),
                 .flops_per_token = flops.causal,
                 .flops_per_token_full_attention = flops.full_attention,
                 .flops_formula = "6 P + 6 L C T (causal), 6 P + 12 L C T (full attention)",
                 .plan = to_cost(resolved_.plan.memory, resolved_.plan.traffic_per_step)});
}

std::vector<UnitStates> Trainer::Run::unit_states() {
  std::vector<UnitStates> states;
  for (std::size_t u = 0; u < step_->model().units().size(); ++u) {
    const FsdpUnit& unit = step_->model().units()[u];
    states.push_back({&unit.layout(), unit.master().as<float>(), step_->optimizer().first(u).as<float>(),
                      step_->optimizer().second(u).as<float>()});
  }
  return states;
}

// ---- the run
// ------------------------------------------------------------------------------------------------------

ExitCode Trainer::Run::train() {
  const RunConfig& config = options_.config;
  while (state_.step < steps_ && !stopping_) {
    if (!take_step()) break;
    const auto due = [&](std::int64_t every) { return every > 0 && state_.step % every == 0; };
    const bool last = state_.step == steps_;
    // Before the save: the checkpoint says which one is the best.
    const bool better = validates() && (last || due(config.train.validate_every)) && validate();
    if (due(config.checkpoint.every_steps) || better || stopping_) save();
  }
  const bool finished = !stopping_ || state_.step >= steps_;
  if (saved_step_ != state_.step) save();
  const ExitCode code = finished ? ExitCode::kOk : ExitCode::kRequeue;
  end(code);
  return code;
}

/// One optimizer step; false at the end of the data.
bool Trainer::Run::take_step() {
  const Clock::time_point begin = Clock::now();
  const DeviceMesh::AxisBytes sent = mesh_.bytes_sent();
  mesh_.set_step(state_.step + 1);
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
      state_.updates + 1, [&] { return options_.stop_asked && options_.stop_asked(); });

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
  waited_ = waited;
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

/// The exact loss over the validation set; true where it is the best so far, to be saved. Where such
/// checkpoints are not kept none is: "best" must name one that is there.
bool Trainer::Run::validate() {
  const Clock::time_point begin = Clock::now();
  const RunConfig& config = options_.config;
  BatchLoaderOptions options = loader_options(config, resolved_, mesh_);
  options.shuffle = false;
  options.epochs = 1;
  options.global_batch_sequences = resolved_.step.sharding.sequences * mesh_.data_ranks();
  std::optional<BatchLoader> loader;
  do_and_agree(mesh_.world(), [&] { loader.emplace(*validation_, options); });
  LossSum sum;
  while (loader->next_step()) {
    const LossSum part = step_->evaluate(loader->batches_per_step(),
                                         [&](std::int64_t) { return host_tokens(loader->next_batch()); });
    sum.loss += part.loss;
    sum.targets += part.targets;
  }
  const double loss = sum.mean();
  const bool better = config.checkpoint.keep_best != KeepBest::kNone && sum.targets > 0 &&
                      std::isfinite(loss) && (!state_.best || loss < state_.best->value);
  if (better) state_.best = BestSoFar{.metric = "loss", .value = loss, .step = state_.step};
  if (leads_) {
    const double seconds = seconds_since(begin);
    ValidationEvent event;
    event.step = state_.step;
    event.loss = loss;
    event.targets = static_cast<std::int64_t>(sum.targets);
    event.seconds = seconds;
    event.best = better;
    directory_->metrics().write(event);
    say(fmt::format("validation at step {}  loss {:.4f}  perplexity {:.2f}  {} targets  {:.1f}s{}",
                    state_.step, loss, std::exp(loss), static_cast<std::int64_t>(sum.targets), seconds,
                    better ? "  best" : ""));
  }
  return better;
}

void Trainer::Run::save() {
  const Clock::time_point begin = Clock::now();
  do_and_agree(mesh_.world(), [&] {
    if (!leads_) return;
    directory_->lock().check_still_owned();
    directory_->metrics().sync();
  });
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

/// Everything ripstop has allocated on the device at most: buffers, and of the arena what was really used.
MemoryUse Trainer::Run::measured_memory() {
  MemoryUse use = ledger_.peak();
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    use[category] += step_->arena().peak()[category] - plan_.arena[category];
  }
  return use;
}

void Trainer::Run::end(ExitCode code) {
  if (!leads_) return;
  const MemoryUse measured = measured_memory();
  directory_->metrics().write(EndEvent{.step = state_.step,
                                       .exit_code = static_cast<int>(code),
                                       .planned = to_cost(plan_.memory, plan_.traffic_per_step),
                                       .measured = to_cost(measured, step_traffic_),
                                       .seconds = seconds_since(begin_)});
  directory_->metrics().sync();
  const auto traffic = [](const DeviceMesh::AxisBytes& t) { return t.replicate + t.fsdp + t.tensor; };
  say(fmt::format("planned / measured: memory {} / {}, sent per step {} / {}",
                  bytes_text(plan_.memory.total()), bytes_text(measured.total()),
                  bytes_text(traffic(plan_.traffic_per_step)), bytes_text(traffic(step_traffic_))));
  if (code == ExitCode::kRequeue)
    say(fmt::format("stopped on a signal after step {}: run the same command again to go on", state_.step));
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
  return run_->train();
}

}  // namespace ripstop
