// The start of a run: everything that is read, checked and resumed before its first step.
#include <algorithm>
#include <utility>

#include "data/dataset/dataset_directory.h"
#include "parallel/agreement.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/config/step_range.h"
#include "train/machine/device_choice.h"
#include "train/machine/equal_ranks.h"
#include "train/machine/machine.h"
#include "train/plan/pretrained_sizes.h"
#include "train/plan/training_data.h"
#include "train/report/human_text.h"
#include "train/run/trainer.h"

namespace ripstop {
namespace {

// The options, if all ranks have the same. This comes before anything else: ranks whose options differ would
// wait for each other in different collectives. An old program explains another config, so it comes first.
const TrainerOptions& require_equal_options(const TrainerOptions& options, MpiWorld& world) {
  Communicator& all = world.communicator();
  const std::string& where = world.places()[static_cast<size_t>(all.rank())].host;
  require_equal_programs(all, where);
  require_equal_configs(all, options.config, where);
  return options;
}

// The device, with the config's wish for sums in a fixed order.
Device training_device(StartTimes& times, const RunSection& run, MpiWorld& world, std::string& note) {
  times.enter(&StartupSeconds::memory);
  Device device = choose_device(run.device, world, note);
  device.deterministic = run.deterministic;
  return device;
}

// Where the sizes of model.pretrained are; nullopt without the key. Collective: one rank looks, all take its
// answer.
std::optional<PretrainedOrigin> pretrained_origin(Io& io, const RunConfig& config, MpiWorld& world) {
  if (config.model.pretrained.empty()) return std::nullopt;
  Communicator& all = world.communicator();
  PretrainedOrigin origin;
  do_and_agree(all, [&] {
    if (all.rank() == 0) origin = find_pretrained_origin(io, config);
  });
  origin.has_begun = text_of_rank_0(all, origin.has_begun ? "begun" : "") == "begun";
  origin.directory = text_of_rank_0(all, origin.directory.string());
  return origin;
}

Validation open_validation(StartTimes& times, const RunConfig& config, const ResolvedRun& run,
                           const Tokenizer& tokenizer, DeviceMesh& mesh) {
  times.enter(&StartupSeconds::data);
  return {config, run, tokenizer, mesh};
}

std::string sizes_text(const ModelConfig& m) {
  return fmt::format(
      "{} layers, hidden {}, feed-forward {}, {} heads ({} key-value), {} ids, {} positions, rope_theta {}, "
      "epsilon {}, {}",
      m.num_hidden_layers, m.hidden_size, m.intermediate_size, m.num_attention_heads, m.num_key_value_heads,
      m.vocab_size, m.max_position_embeddings, m.rope_theta, m.rms_norm_eps,
      m.tie_word_embeddings ? "tied" : "untied");
}

// The target of this start. Collective.
RunTarget start_target(Io& io, const std::optional<PretrainedOrigin>& origin, MpiWorld& world,
                       const Device& device, const TokenDataset& dataset) {
  RunTarget target = run_target(world, device, dataset.header().vocabulary_size);
  if (!origin) return target;
  Communicator& all = world.communicator();
  do_and_agree(all, [&] { target.pretrained = read_model_sizes(io, origin->directory); });
  // Before anything depends on them: with other sizes ranks would wait in other collectives.
  require_equal(all, ExitCode::kInputData, "the pretrained model", sizes_text(*target.pretrained),
                world.places()[static_cast<size_t>(all.rank())].host, kSamePretrainedHint);
  return target;
}

// The ranks as a mesh.
DeviceMesh make_mesh(StartTimes& times, MpiWorld& world, const ResolvedRun& run, const RunConfig& config,
                     const Device& device) {
  times.enter(&StartupSeconds::mpi);
  return {world, run.mesh, config.mesh.allow_tensor_across_nodes, device};
}

Tokenizer dataset_tokenizer(StartTimes& times, const std::string& directory) {
  times.enter(&StartupSeconds::data);
  return Tokenizer(dataset_file(directory, kTokenizerFile));
}

// The training set. Another tokenizer beside it would be stored in the run, and read its summaries wrongly.
TokenDataset training_set(const std::string& directory, const Tokenizer& tokenizer) {
  TokenDataset dataset(dataset_file(directory, "train.h5"));
  require_dataset_tokenizer(dataset, tokenizer);
  return dataset;
}

}  // namespace

Trainer::Trainer(const TrainerOptions& options, MpiWorld& world)
    : options_(require_equal_options(options, world)),
      world_(world),
      leads_(world.communicator().rank() == 0),
      tokenizer_(dataset_tokenizer(options_.start_times, options.config.data.directory)),
      dataset_(training_set(options.config.data.directory, tokenizer_)),
      device_(training_device(options_.start_times, options.config.run, world, device_note_)),
      pretrained_(pretrained_origin(io_, options.config, world)),
      target_(start_target(io_, pretrained_, world, device_, dataset_)),
      resolved_(resolve_run(options.config, target_)),
      library_memory_(device_),
      mesh_(make_mesh(options_.start_times, world, resolved_, options.config, device_)),
      validation_(open_validation(options_.start_times, options_.config, resolved_, tokenizer_, mesh_)) {
  if (!device_note_.empty()) resolved_.notes.push_back("run.device = \"auto\" is the CPU: " + device_note_);
  // First: ranks that differ would wait for each other in the collectives of the start.
  check_agreement();
}

// Returns false if a stop was requested. The ranks agree on it after each part that may take long.
bool Trainer::start() {
  const RunConfig& config = options_.config;
  if (agree_to_stop()) return false;
  enter(&StartupSeconds::mpi);
  validation_.connect(world_, device_);
  enter(&StartupSeconds::data);
  // The plan counted memory for summaries before the validation set was opened.
  if (!validation_.any()) {
    resolved_.validates = false;
    resolved_.summaries.reset();
    resolved_.summaries_memory = {};
    resolved_.plan = plan_fullest(resolved_.request(target_.device));
  }
  require_targets(dataset_, config);
  if (!count_steps()) return false;
  enter(&StartupSeconds::weights);
  open_first_weights();
  enter(&StartupSeconds::resume);
  do_and_agree(mesh_.world(), [&] {
    open_directory();
    find_time_limit();
  });

  enter(&StartupSeconds::memory);
  plan_ = plan_rank(resolved_.request(target_.device), mesh_.coordinates());
  // Takes memory outside the plan for a moment, so it comes before the step's memory is taken and counted.
  peak_flops_ = find_peak_flops(world_, device_, resolved_.step.sharding.compute);
  if (!peak_flops_ && device_.kind == DeviceKind::kCpu)
    resolved_.notes.emplace_back(
        "other programs keep the processors busy: their peak could not be measured, so there is no mfu");
  flops_per_token_ = resolved_.flops_per_token();
  resident_before_bytes_ = resident_memory().now_bytes;
  library_memory_.check_room(resolved_.memory().total());
  step_.emplace(resolved_.model, resolved_.step, mesh_, stream_, ledger_, plan_.arena);
  enter(&StartupSeconds::resume);
  if (agree_to_stop() || !resume_or_initialize()) return false;
  find_start_scores();
  enter(&StartupSeconds::data);
  do_and_agree(mesh_.world(), [&] {
    loader_.emplace(dataset_, loader_options(config, resolved_, mesh_),
                    DataCursor{state_.epoch, state_.sequence});
  });
  enter(&StartupSeconds::other);
  prepare_saves();
  was_done_ = is_done();
  if (!was_done_) do_and_agree(mesh_.world(), [&] { prepare_kernels(); });
  do_and_agree(mesh_.world(), [&] { announce(); });
  return true;
}

// Collective. Whether a stop was requested on any rank.
bool Trainer::agree_to_stop() {
  stop_agreed_ = least_of_all_ranks(mesh_.world(), stop_requested(0) ? 0 : 1) == 0;
  return stop_agreed_;
}

// Returns false if a stop was requested meanwhile.
bool Trainer::count_steps() {
  // A million epochs take hours to count, and an agreement costs more than a small epoch.
  constexpr int64_t kEpochsAVote = 16;
  int64_t epochs = 0;
  const std::optional<TrainingData> data = count_training_data(
      dataset_, options_.config, [&] { return ++epochs % kEpochsAVote != 0 || !agree_to_stop(); });
  if (!data) return false;
  length_ = run_length(options_.config, resolved_, data);
  steps_ = data->steps;
  if (const int64_t last = parse_step_range(options_.config.run.profile_steps).last; last > steps_)
    resolved_.notes.push_back(
        fmt::format("run.profile_steps ends at step {}, train.epochs come to {} steps", last, steps_));
  return true;
}

void Trainer::check_agreement() {
  const std::string where = mesh_.hosts()[static_cast<size_t>(mesh_.position())];
  // "auto" depends on the processor's bfloat16 arithmetic, which may differ between nodes.
  require_equal(
      mesh_.world(), ExitCode::kResources, "micro-batch",
      fmt::format("{} sequences in {}, recompute {}, {} rows of logits at once",
                  resolved_.step.sharding.sequence_count, to_string(resolved_.step.sharding.compute),
                  to_string(resolved_.step.sharding.recompute), resolved_.step.sharding.head_chunk_rows),
      where, "give train.micro_batch_sequences and train.recompute, or use nodes of one kind");
  require_equal(mesh_.world(), ExitCode::kInputData, "data set", dataset_.content_hash(), where,
                "make the same data.directory visible on every node");
  require_equal(mesh_.world(), ExitCode::kInputData, "validation set", validation_.content_hash(), where,
                "make the same data.directory visible on every node");
}

// Rank 0 takes the lock and checks the disk before anything large is allocated.
void Trainer::open_directory() {
  if (!leads_) return;
  const RunConfig& config = options_.config;
  directory_.emplace(io_, config, tokenizer_, dataset_.header().prompt_template,
                     RunLockWait{.say = [this](const std::string& text) { say(text); },
                                 .stop_requested = [this] { return stop_requested(0); }});
  directory_->lock_linked_checkpoints(io_);
  prepare_checkpoint_directory(io_, directory_->checkpoints());
  // Also one that cannot be read now: a start from an older step would make it count as superseded.
  for (const ListedCheckpoint& checkpoint : list_checkpoints(io_, directory_->checkpoints()))
    if (checkpoint.manifest || checkpoint.is_unreadable) newest_step_ = checkpoint.step;
  directory_->require_progress(newest_step_);
  check_disk_space(io_, directory_->checkpoints(), config.checkpoint.keep,
                   checkpoint_bytes(resolved_.trained_table(),
                                    {resolved_.mesh.replicate, resolved_.mesh.fsdp, resolved_.mesh.tensor},
                                    resolved_.step.adamw.moments));
}

// On rank 0 of a start that was stopped before it had the directory. A job's start must count all the same. A
// person may stop as many as they like, and nothing is written then.
void Trainer::open_directory_of_job() {
  if (!leads_ || directory_ || !Takeovers::is_in_job()) return;
  try {
    open_directory();
  } catch (const Error& error) {
    // Another start may own it, and a stop waits for nobody.
    if (error.code() != ExitCode::kRequeue) throw;
    directory_.reset();
  }
}

// Refuses a checkpoint that this run must not go on from, though its config fits.
void Trainer::check_checkpoint(const CheckpointState& saved) const {
  const auto require_same_set = [&](bool same, const char* set) {
    if (!same)
      throw Error(
          ExitCode::kUsage,
          fmt::format("the {} in {} is not the one this run began with", set, options_.config.data.directory),
          "a new run is a new directory");
  };
  require_same_set(
      saved.data_content_hash == dataset_.content_hash() && saved.tokenizer_sha256 == tokenizer_.sha256(),
      "data set");
  // A run may begin to validate later, and stop validating.
  const auto is_set = [](const std::string& hash) { return !hash.empty() && hash != Validation::kNoSet; };
  require_same_set(!is_set(saved.validation_content_hash) || !validation_.any() ||
                       saved.validation_content_hash == validation_.content_hash(),
                   "validation set");
  // Equal is fine: such a run is done and says so.
  if (saved.step > steps_)
    throw Error(ExitCode::kUsage,
                fmt::format("the run has done {} steps, train.steps is {}", saved.step, steps_),
                "give at least as many, or another run.directory for a new run");
  if (!saved.pack_plan_hash.empty() && saved.pack_plan_hash != length_.data->plan_hash)
    throw Error(ExitCode::kStorage, "the order of the data differs from the checkpoint's",
                "another version of ripstop began this run, and packs sequences differently");
}

// Fills weights, moments and state_, from the newest whole checkpoint if there is one. Returns false if a
// stop was requested meanwhile; then the run is as it was, except that damaged checkpoints are moved aside.
bool Trainer::resume_or_initialize() {
  std::vector<std::string> warnings;
  std::optional<ResumableCheckpoint> resumed;
  const auto accept = [&](const Checkpoint& checkpoint) {
    // First: another config explains another order of the data.
    resumed = check_stored_config(checkpoint, options_.config, resolved_.model);
    check_checkpoint(checkpoint.manifest.state);
  };
  const std::vector<UnitStates> states = live_states(step_->model(), step_->optimizer());
  const int64_t fsdp_index = mesh_.coordinates().fsdp;
  const auto load = [&](const Checkpoint& checkpoint) {
    CheckpointReader reader(io_, checkpoint);
    load_states(states, stream_,
                [&](const std::vector<UnitStates>& units) { reader.read(fsdp_index, units); });
  };
  show("looking for a checkpoint of " + options_.config.run.directory);
  const std::optional<CheckpointState> saved =
      resume_newest(io_, std::filesystem::path(options_.config.run.directory) / "checkpoints", mesh_.world(),
                    fsdp_index, states, accept, warnings, load);
  if (saved) {
    // Open if another start of this run has saved while this one began.
    first_weights_.reset();
    first_adapters_.reset();
    state_ = *saved;
    saved_step_ = state_.step;
    // The checkpoint holds float32 master weights: renew the compute copies.
    step_->model().weights_changed(step_->arena());
    resume_notes_ = notes_on_resume(*resumed);
  } else {
    enter(&StartupSeconds::weights);
    set_first_weights();
    enter(&StartupSeconds::resume);
    state_.model = resolved_.model;
    state_.data_content_hash = dataset_.content_hash();
    state_.tokenizer_sha256 = tokenizer_.sha256();
  }
  // A run that is done computes nothing, so its base may be gone.
  if (has_adapters() && !is_done()) {
    enter(&StartupSeconds::weights);
    if (saved) find_base_again(resumed->config);
    read_base();
    enter(&StartupSeconds::resume);
  }
  state_.config = to_toml(options_.config);
  state_.pack_plan_hash = length_.data->plan_hash;
  // The set that the scores so far belong to stays known while the run does not validate.
  if (validation_.any() || state_.validation_content_hash.empty())
    state_.validation_content_hash = validation_.content_hash();
  end_live_line();
  if (agree_to_stop()) {
    // The log is not open yet.
    for (const std::string& text : warnings) say("warning: " + text);
    return false;
  }
  // Only now is it certain from which step the run goes on, and that nothing refuses it.
  take_over();
  do_and_agree(mesh_.world(), [&] {
    if (!leads_) return;
    directory_->open_metrics(state_.step);
    for (const std::string& text : warnings) warn(text);
  });
  return true;
}

// Collective: records from which step this start goes on. A run that is done commits nothing: starting it
// again is no takeover, and no restart without progress.
void Trainer::take_over() {
  state_.takeover = 0;
  if (is_done()) return;
  int64_t number = 0;
  do_and_agree(mesh_.world(), [&] {
    if (leads_) number = directory_->take_over(state_.step);
  });
  state_.takeover = all_gather_number(mesh_.world(), number).front();
}

// A save that was not measured yet takes as long as the last one of the run, or what its bytes take on a slow
// disk.
void Trainer::find_time_limit() {
  constexpr double kSlowBytesPerSecond = 250e6;
  if (!leads_ || !options_.deadline) return;
  double save_seconds = static_cast<double>(length_.checkpoint_bytes) / kSlowBytesPerSecond;
  const std::filesystem::path metrics = directory_->path() / "metrics.jsonl";
  if (std::filesystem::exists(metrics))
    for (const CheckpointEvent& saved : read_metrics(metrics).checkpoints) save_seconds = saved.seconds;
  time_limit_.emplace(*options_.deadline, save_seconds);
}

// For people: what the run does differently from now on.
std::vector<std::string> Trainer::notes_on_resume(const ResumableCheckpoint& saved) {
  std::vector<std::string> notes = resume_notes(saved, mesh_.sizes());
  const RunConfig& config = options_.config;
  if (saved.config.train.steps == config.train.steps && saved.config.train.epochs == config.train.epochs)
    return notes;
  // Less work than count_steps() has done already: a run only grows.
  const int64_t old_steps = count_training_data(dataset_, saved.config).steps;
  const std::string jump = rate_jump(config, state_.step, old_steps, steps_);
  if (!jump.empty()) notes.push_back(jump);
  return notes;
}

// Attention has a plan for each number and length of documents, which takes up to a second. In steps, ranks
// would make them at different times, and wait for each other. All ranks make those of all, at once.
void Trainer::prepare_kernels() {
  if (device_.kind != DeviceKind::kCuda) return;
  show("making plans of attention");
  const DocumentCounts trained = coming_documents(dataset_, loader_options(options_.config, resolved_, mesh_),
                                                  {state_.epoch, state_.sequence}, kStepsLookedAt);
  kernel_plans_ = ripstop::prepare_kernels(step_->model(), trained,
                                           validation_.any() ? validation_.documents() : DocumentCounts{});
  end_live_line();
}

}  // namespace ripstop
