#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/dataset/token_dataset.h"
#include "data/tokenizer/tokenizer.h"
#include "model/core/rounding.h"
#include "model/device/cuda_machine.h"
#include "model/kernels/cpu/processor.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/checkpoint/takeovers.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/plan_output.h"
#include "train/commands/plan_rates.h"
#include "train/config/config_keys.h"
#include "train/config/nearest_name.h"
#include "train/exchange/hugging_face/model_tokenizer.h"
#include "train/exchange/hugging_face/stored_elements.h"
#include "train/exchange/peft/peft_adapter.h"
#include "train/exchange/read/open_model.h"
#include "train/machine/machine.h"
#include "train/plan/fitting_meshes.h"
#include "train/plan/micro_batch.h"
#include "train/plan/pipeline_plan.h"
#include "train/plan/plan_text.h"
#include "train/plan/pretrained_sizes.h"
#include "train/plan/run_length.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"
#include "train/run/resume_check.h"
#include "train/run/validation.h"

namespace ripstop {
namespace {

// Rows that a search shows without --limit: the table and the lines below it fit on a screen.
constexpr int64_t kRowsOfSearch = 10;

struct PlanArguments {
  std::string config_file;
  std::vector<std::string> overrides;
  std::string device;
  std::string device_memory;
  int64_t nodes = 0;
  int64_t tasks = 0;  ///< --ntasks-per-node
  int64_t cpus_per_task = 0;
  int64_t limit = 0;  ///< --limit: rows of the search
  RateArguments rates;
  bool search = false;
  bool json = false;
};

void print_for_people(const RunConfig& config, const ResolvedRun& run, const RunLength& length,
                      const RunTarget& target, const std::filesystem::path& continued) {
  print_out("mesh            {} ({})\n", run.mesh.to_text(), counted(run.mesh.ranks(), "rank"));
  if (target.device == DeviceKind::kCpu) print_out("threads         {} a rank\n", cpu_threads());
  print_out("parameters      {}\n", parameter_count(run.model));
  print_out("model           {}\n", model_text(run.model));
  if (run.step.sharding.lora.any()) print_out("adapters        {}\n", parameters_text(run));
  print_out("flops per token {:.4g} (causal)\n", run.flops_per_token().causal);
  print_out("micro-batch     {}, {} a step{}\n", counted(run.step.sharding.sequence_count, "sequence"),
            run.micro_batches, idle_text(config, run));
  if (run.mesh.pipeline > 1) print_out("pipeline        {}\n", pipeline_text(run, target.device));
  print_out("recompute       {}\n", recompute_text(run));
  if (target.device == DeviceKind::kCuda)
    print_out("head            {} rows of logits at once\n", run.step.sharding.head_chunk_rows);
  if (!continued.empty())
    print_out("continues       {}, step {}\n", continued.string(),
              read_manifest(posix_io(), continued).state.step);
  for (const LengthLine& line : length_lines(config, length)) print_out("{:<16}{}\n", line.name, line.text);
  print_out("the fullest rank, computing in {}:\n{}\n", to_string(run.step.sharding.compute),
            plan_text(run, target.device_memory_bytes));
  for (const std::string& note : run.notes) print_out("note: {}\n", note);
}

/// Sets the threads of a CPU rank, on which the size of workspaces depends: --cpus-per-task, else
/// $OMP_NUM_THREADS, else an equal share of this machine's cores, as in slurm/launch.sh.
void plan_for_threads(int64_t cpus_per_task, int64_t ranks_of_node) {
  if (cpus_per_task == 0 && std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int64_t share = allowed_cores() / std::max<int64_t>(ranks_of_node, 1);
  set_cpu_threads(cpus_per_task > 0 ? cpus_per_task : std::max<int64_t>(share, 1));
}

/// The data sets of a config, in their order. If one is missing, `datasets` is empty, and `notes` say why.
struct PlannedData {
  std::vector<std::string> notes;
  std::vector<TokenDataset> datasets;
  std::string validation;               ///< content_hashes() of the validation sets; "": not opened
  bool is_validated = true;             ///< false: the run validates, but no validation set exists
  bool is_refused = false;              ///< train would refuse the run, and a note says so
  std::optional<TrainingData> counted;  ///< nullopt without data sets

  /// Returns the note that train will refuse `what`, and sets is_refused.
  std::string refuse(const std::string& what, const Error& error) {
    is_refused = true;
    return fmt::format("train will refuse {}: {}{}{}", what, error.what(), error.hint().empty() ? "" : ": ",
                       error.hint());
  }
};

PlannedData open_data(const DataSection& data) {
  PlannedData found;
  for (const std::string& directory : data.all()) {
    const std::filesystem::path file = std::filesystem::path(directory) / "train.h5";
    std::error_code error;
    if (!directory.empty() && std::filesystem::exists(file, error)) {
      found.datasets.emplace_back(file);
      continue;
    }
    const std::string near = hint_for_absent_set(data, directory);
    found.notes.push_back(fmt::format(
        "no data set at {} '{}': its epochs and cut documents are not known, and train needs it{}",
        data.key(), directory, near.empty() ? "" : "; " + near));
  }
  if (!found.notes.empty()) found.datasets.clear();
  return found;
}

/// Notes on tokenizers and validation sets, for example why train would refuse them, and on a pretrained
/// model whose end token differs from that of the data. Some notes may be empty. Sets data.validation,
/// data.is_validated and, on an error, data.is_refused.
std::vector<std::string> inputs_notes(const RunConfig& config, const RunTarget& target,
                                      const ResolvedRun& run, PlannedData& data) {
  std::vector<std::string> notes;
  try {
    const Tokenizer tokenizer(config.data.first());
    notes = tokenizer.notes();
    open_training_sets(config, tokenizer);
    const std::vector<ValidationSet> validation = open_validation_sets(config, run, tokenizer);
    data.validation = content_hashes(validation);
    data.is_validated = any_set(validation) || !config.train.validates();
    notes.push_back(validation_note(config, validation));
    if (config.model.pretrained.empty()) return notes;
    Io io;
    const PretrainedOrigin origin = find_pretrained_origin(io, config);
    if (origin.has_begun) return notes;
    notes.push_back(compare_tokenizers({.model = origin.directory,
                                        .model_sha256 = find_tokenizer_sha256(io, origin.directory),
                                        .user = "the data set " + config.data.first(),
                                        .may_go_on = true},
                                       tokenizer));
    notes.push_back(end_tokens_note(config, target.pretrained_ends, tokenizer));
  } catch (const Error& error) {
    notes.push_back(data.refuse("the data set", error));
  }
  return notes;
}

/// Notes on the files of weights and adapters with which a new run would begin.
std::vector<std::string> weights_notes(const RunConfig& config, const ModelConfig& model) {
  std::vector<std::string> notes;
  if (config.model.pretrained.empty()) return notes;
  try {
    Io io;
    const PretrainedOrigin origin = find_pretrained_origin(io, config);
    if (origin.has_begun) return notes;
    notes = open_stored_model(io, origin.directory).notes();
    if (const auto adapters = open_first_adapters(config.lora, model))
      std::ranges::move(wrappers_notes(adapters->directory, adapters->wrappers), std::back_inserter(notes));
  } catch (const Error&) {
    // Errors are ignored, because a plan needs only config.json of the model.
  }
  return notes;
}

/// Adds the speed of the run's last steps, if they fit the plan, and how many nodes they had, if not given.
void add_speed_of_last_steps(const RunConfig& config, const ResolvedRun& run, const RunTarget& target,
                             RunLength& length) {
  const std::filesystem::path metrics = std::filesystem::path(config.run.directory) / "metrics.jsonl";
  try {
    const MetricsLog log = read_log_ends(metrics, last_takeover_steps(posix_io(), metrics.parent_path()));
    length.speed = measured_speed(log, run, target);
    if (!length.speed || length.nodes > 0) return;
    const std::vector<std::string>& hosts = log.starts.back().hosts;
    length.nodes = std::ssize(std::set<std::string>(hosts.begin(), hosts.end()));
  } catch (const Error&) {
    // No log can be read, so no speed is known.
  }
}

/// Adds the time of a step: from the rates on the command line, else from the run's own last steps, else from
/// the data sheet of this machine's GPU.
void add_speed(const PlanArguments& given, const RunConfig& config, RunTarget target, ResolvedRun& run,
               RunLength& length) {
  if (!given.rates.any()) add_speed_of_last_steps(config, run, target, length);
  if (length.speed) return;
  if (target.ranks_per_node == 0)
    target.ranks_per_node = divide_up(target.ranks, std::max<int64_t>(given.nodes, 1));
  const std::vector<CudaGpu> gpus = look_at_cuda().gpus;
  add_planned_time(target, gpus.empty() ? "" : gpus.front().name, run, length);
}

/// The job of --nodes and --ntasks-per-node; without them, as many ranks as the config's mesh has, on
/// machines like this one.
RunTarget plan_target(const RunConfig& config, const PlanArguments& given, int64_t vocabulary) {
  int64_t asked = 1;
  for (const MeshAxis axis : kMeshAxes) asked *= config.mesh[axis].value_or(1);
  const int64_t nodes = std::max<int64_t>(given.nodes, 1);
  const int64_t ranks =
      given.nodes > 0 || given.tasks > 0 ? nodes * std::max<int64_t>(given.tasks, 1) : asked;
  const bool automatic = given.device.empty() && config.run.device == DeviceChoice::kAuto;
  const bool cuda = given.device == "cuda" ||
                    (given.device.empty() && config.run.device == DeviceChoice::kCuda) ||
                    (automatic && cuda_device_count() > 0);
  if (!cuda) plan_for_threads(given.cpus_per_task, given.tasks > 0 ? given.tasks : ranks / nodes);
  RunTarget target = run_target(ranks, cuda ? DeviceKind::kCuda : DeviceKind::kCpu,
                                parse_memory("--device-memory", given.device_memory), vocabulary);
  target.ranks_per_node = given.tasks;
  if (given.rates.any()) {
    target.ranks_per_node = given.tasks > 0 ? given.tasks : divide_up(ranks, nodes);
    const bool halves = config.precision.compute == FloatChoice::kBfloat16;
    target.rates = rates_for_plan(given.rates, target, halves ? DType::kBFloat16 : DType::kFloat32);
  }
  read_pretrained_for_plan(config, target);
  return target;
}

// resolve_run(). If `json` is set and the plan does not fit, prints refusal_document before it throws.
ResolvedRun resolve_or_say_what_fits(const RunConfig& config, const RunTarget& target, bool json) {
  try {
    return resolve_run(config, target);
  } catch (const PlanTooLarge& error) {
    if (json) print_out("{}\n", refusal_document(error, target));
    throw;
  }
}

// Throws Error(kResources) if a tensor group would span nodes of `ranks_per_node` ranks and the config does
// not allow it. `ranks_per_node` may be 0: not known.
void require_tensor_groups_in_nodes(const RunConfig& config, int64_t ranks_per_node) {
  if (ranks_per_node % *config.mesh.tensor != 0 && !config.mesh.allow_tensor_across_nodes)
    throw Error(ExitCode::kResources,
                fmt::format("mesh.tensor = {} does not divide the {} ranks of a node", *config.mesh.tensor,
                            ranks_per_node),
                "a tensor group must lie inside one node, or set mesh.allow_tensor_across_nodes");
}

/// Why train would refuse to go on with the run at run.directory, or with the checkpoint `continued` of
/// find_continued(); "" if it would go on or no run can be read. Counts data.counted from that checkpoint on.
std::string existing_run_note(const RunConfig& config, const ModelConfig& model, PlannedData& data,
                              const std::filesystem::path& continued) {
  Io io;
  std::optional<Checkpoint> newest;
  try {
    for (ListedCheckpoint& each :
         list_checkpoints(io, std::filesystem::path(config.run.directory) / "checkpoints"))
      if (each.manifest) newest = Checkpoint{each.directory, std::move(*each.manifest)};
    if (!continued.empty()) newest = Checkpoint{continued, read_manifest(io, continued)};
  } catch (const Error&) {
    return "";  // no readable run: a plan does not need one
  }
  if (!newest) return "";
  try {
    const ResumableCheckpoint saved = check_resumable(*newest,
                                                      {.config = config,
                                                       .model = model,
                                                       .datasets = data.datasets,
                                                       .validation = data.validation,
                                                       .continues = !continued.empty()},
                                                      data.counted ? &*data.counted : nullptr);
    const CheckpointState& state = newest->manifest.state;
    if (const std::optional<AdaptedBase>& base = state.adapted;
        base && state.step < config.train.steps.value_or(std::numeric_limits<int64_t>::max()))
      find_base(io, *base, state.model,
                places_of_base(*base, saved.config.model.pretrained, config.model.pretrained));
  } catch (const Error& error) {
    return data.refuse("to go on with " + (continued.empty() ? config.run.directory : continued.string()),
                       error);
  }
  return "";
}

/// Adds notes on data, rates, weights and an existing run to run.notes.
void add_notes(const PlanArguments& given, const RunConfig& config, const RunTarget& target,
               PlannedData& data, const std::filesystem::path& continued, ResolvedRun& run) {
  const auto add = [&](std::vector<std::string> notes) {
    std::erase(notes, "");
    std::ranges::move(notes, std::back_inserter(run.notes));
  };
  add(data.notes);
  add(rates_notes(given.rates, target, cpu_threads()));
  if (data.counted) add(inputs_notes(config, target, run, data));
  add(weights_notes(config, run.model));
  if (data.counted) add(data_notes(data.datasets, config));
  add({existing_run_note(config, run.model, data, continued)});
}

/// Resets what the search decides: micro-batch, recomputation and mesh sizes that the command line does not
/// override, and stages of a pipeline whose size is not kept. If the command line cuts the config's pipeline
/// into stages, its size is kept. Returns the kept sizes.
KeptSizes keep_given_sizes(const PlanArguments& given, RunConfig& config) {
  const auto is_given = [&](std::string_view path) { return is_overridden(path, given.overrides); };
  KeptSizes kept;
  const MeshSection defaults;
  const bool cut_is_given = config.mesh.pipeline.value_or(1) > 1 &&
                            (is_given("mesh.pipeline_layers") || is_given("mesh.pipeline_stages_per_rank"));
  for (const MeshAxis axis : kMeshAxes)
    if (is_given(fmt::format("mesh.{}", to_string(axis))) || (axis == MeshAxis::kPipeline && cut_is_given))
      kept[axis] = config.mesh[axis];
    else
      config.mesh[axis] = defaults[axis];
  if (!kept.pipeline) {
    config.mesh.pipeline_layers.reset();
    config.mesh.pipeline_stages_per_rank = defaults.pipeline_stages_per_rank;
  }
  if (!is_given("train.micro_batch_sequences")) config.train.micro_batch_sequences = std::nullopt;
  if (!is_given("train.recompute")) config.train.recompute = RecomputeChoice::kAuto;
  return kept;
}

ExitCode search(RunConfig config, RunTarget target, const PlanArguments& given, PlannedData& data,
                const std::filesystem::path& continued) {
  const int64_t nodes = std::max<int64_t>(given.nodes, 1);
  SearchedJob job{.config_file = given.config_file,
                  .overrides = given.overrides,
                  .nodes = nodes,
                  .ranks_per_node = target.ranks / nodes,
                  .cpus_per_task = given.cpus_per_task,
                  .has_pipeline = config.mesh.pipeline.value_or(1) > 1 ||
                                  is_overridden("mesh.pipeline", given.overrides)};
  target.ranks_per_node = job.ranks_per_node;
  const KeptSizes kept = keep_given_sizes(given, config);
  require_tensor_groups_in_nodes(config, job.ranks_per_node);
  MeshSearch found = search_meshes(config, target, kept, given.limit > 0 ? given.limit : kRowsOfSearch);
  if (found.rows.empty()) {
    // Nothing fits: throws the error of a plan for the first mesh or, without any mesh, for the given sizes.
    if (found.first)
      for (const MeshAxis axis : kMeshAxes) config.mesh[axis] = (*found.first)[axis];
    resolve_or_say_what_fits(config, target, given.json);
    RIPSTOP_CHECK(false, "the search has missed {} ranks", target.ranks);
  }
  job.step_tokens = run_length(config, found.rows.front(), data.counted).step_tokens;
  add_notes(given, config, target, data, continued, found.rows.front());
  for (ResolvedRun& row : found.rows)
    if (!data.is_validated) plan_without_validations(row, target.device);
  const std::vector<std::string>& notes = found.rows.front().notes;
  if (given.json) {
    print_out("{}\n", search_document(found, target, job, notes));
    return ExitCode::kOk;
  }
  print_out("{}", search_text(found, target, job));
  for (const std::string& note : notes) print_out("note: {}\n", note);
  return ExitCode::kOk;
}

ExitCode plan(const PlanArguments& given) {
  if (given.limit > 0 && !given.search)
    throw CommandLineError("--limit is the number of rows of a search", "did you mean --search --limit?");
  const RunConfig of_file = load_run_config(given.config_file, given.overrides);
  const std::filesystem::path continued = find_continued(posix_io(), of_file);
  PlannedData data = open_data(of_file.data);
  if (!data.datasets.empty()) require_targets(data.datasets, of_file);
  const int64_t vocabulary = data.datasets.empty() ? 0 : data.datasets.front().header().vocabulary_size;
  RunTarget target = plan_target(of_file, given, vocabulary);
  const RunConfig config = target.with_ends(of_file);
  if (!data.datasets.empty()) data.counted = count_training_data(data.datasets, config);
  target.rows = rows_of(data.counted, config.data.sequence_length);
  if (given.search) return search(config, target, given, data, continued);
  require_tensor_groups_in_nodes(config, given.tasks);
  ResolvedRun run = resolve_or_say_what_fits(config, target, given.json);
  add_notes(given, config, target, data, continued, run);
  if (!data.is_validated) plan_without_validations(run, target.device);
  RunLength length = run_length(config, run, data.counted);
  length.is_refused = data.is_refused;
  if (given.nodes > 0 || given.tasks > 0 || given.rates.any())
    length.nodes = std::max<int64_t>(given.nodes, 1);
  add_speed(given, config, target, run, length);
  if (given.json)
    print_out("{}\n", plan_document(config, run, length, target, continued));
  else
    print_for_people(config, run, length, target, continued);
  return ExitCode::kOk;
}

}  // namespace

void add_plan(CommandLine& line) {
  Verb verb = line.verb("plan", "memory, traffic and length of a run, before it is started");
  verb.add_details(
      "--search does not use the sizes of [mesh], train.micro_batch_sequences and train.recompute in the "
      "file. Those on the\ncommand line, as in mesh.tensor=4, restrict it. Each row is the best of those "
      "that are left: the fewest percent of\nthe computation lost (idle, or computed again), then the fewest "
      "bytes between nodes (an axis with a group on several\nnodes counts there as a whole), then the fewest "
      "bytes in all (up to 5% more are as few), then the larger micro-batch,\nthen the least memory. With "
      "--rates, --rank-flops or --between-nodes: the shortest step.\n\nThe time leaves out what has no rate, "
      "and says so; validations, saves and loading data are never in it.");
  const auto given = std::make_shared<PlanArguments>();
  verb.path("CONFIG", given->config_file, "TOML file").required();
  verb.option("overrides", given->overrides, "section.key=value, stronger than the file");
  verb.option("--nodes", given->nodes, "nodes of the job; default: 1").range(1, 1 << 20);
  verb.option("--ntasks-per-node", given->tasks,
              "ranks on each node; without this and --nodes: those of [mesh] in the config, of which fsdp = "
              "\"auto\" counts 1")
      .range(1, 1 << 16);
  verb.option(
          "--cpus-per-task", given->cpus_per_task,
          "threads of each rank; default: $OMP_NUM_THREADS, else this machine's cores over a node's ranks")
      .range(1, 1 << 12);
  verb.option("--device", given->device,
              "cpu or cuda; default: run.device, and for auto the device that this build and machine have")
      .choices({"cpu", "cuda"});
  verb.option(
      "--device-memory", given->device_memory,
      "memory of one rank, with its unit: 64GiB is 64 x 2^30 bytes, 64GB is 64 x 10^9; a card named 24 "
      "GB has 24GiB; a plan that exceeds it is refused");
  verb.flag("--search", given->search,
            "list every mesh and micro-batch that fits, best first, and the lines to paste for the first; "
            "pipelines with rates or mesh.pipeline=N");
  verb.option("--limit", given->limit, "rows that --search shows; default: 10").range(1, 1 << 20);
  verb.path(
      "--rates", given->rates.rates,
      "tell the time from these rates: a file of doctor --output, or a GPU of which ripstop knows the data "
      "sheet, as H100");
  verb.option("--between-nodes", given->rates.between_nodes,
              "a node's link to others, each way, as 25Gbit; instead of the rates'");
  verb.option("--rank-flops", given->rates.rank_flops,
              "FLOP/s that a rank reaches in products, as 400T; instead of the rates'");
  verb.flag("--json", given->json, "one JSON document");
  verb.set_example(
      "ripstop plan configs/xsum-scratch.toml --nodes 4 --ntasks-per-node 8 --device cuda "
      "--device-memory 80GiB\n"
      "  ripstop plan configs/xsum-scratch.toml --search --nodes 4 --ntasks-per-node 8 --device cuda "
      "--device-memory 80GiB\n"
      "  ripstop plan configs/xsum-scratch.toml --search --nodes 4 --ntasks-per-node 8 --device cuda "
      "--rates H100 --between-nodes 400Gbit");
  verb.set_action([given] { return plan(*given); });
}

}  // namespace ripstop
