#include "train/commands/plan_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "data/process/shell_word.h"
#include "data/text/json_reader.h"
#include "data/text/json_struct.h"
#include "model/kernels/cpu/processor.h"
#include "train/plan/plan_text.h"
#include "train/report/human_text.h"

namespace ripstop {
namespace {

using Json = FieldWriter::Json;

std::vector<std::string> sbatch_options(const SearchedJob& job, const RunTarget& target) {
  std::vector<std::string> options{fmt::format("--nodes={}", job.nodes),
                                   fmt::format("--ntasks-per-node={}", job.ranks_per_node)};
  if (target.device == DeviceKind::kCuda)
    options.push_back(fmt::format("--gpus-per-node={}", job.ranks_per_node));
  if (job.cpus_per_task > 0) options.push_back(fmt::format("--cpus-per-task={}", job.cpus_per_task));
  return options;
}

// Whether an override sets a key that the search decides.
bool is_searched_key(const std::string& override_text) {
  const std::string key = override_text.substr(0, override_text.find('='));
  return key == "train.micro_batch_sequences" || key == "train.recompute" ||
         key == "mesh.pipeline_stages_per_rank" || std::ranges::any_of(kMeshAxisWords, [&](const char* axis) {
           return key == "mesh." + std::string(axis);
         });
}

// "train CONFIG section.key=value ...", quoted for a shell, without keys that the search decides.
std::string train_words(const SearchedJob& job) {
  std::string text = "train " + shell_word(job.config_file);
  for (const std::string& word : job.overrides)
    if (!is_searched_key(word)) text += " " + shell_word(word);
  return text;
}

std::optional<double> device_share(const ResolvedRun& run, const RunTarget& target) {
  if (!target.device_memory_bytes) return std::nullopt;
  return static_cast<double>(run.memory().total() + run.library_bytes) /
         static_cast<double>(*target.device_memory_bytes);
}

// "1024 ranks (128 nodes of 8), each with 80.0 GiB, of which CUDA's libraries take 3.0 GiB".
std::string job_line(const ResolvedRun& run, const RunTarget& target, const SearchedJob& job) {
  std::string text = fmt::format("{} ({} of {})", counted(target.ranks, "rank"), counted(job.nodes, "node"),
                                 job.ranks_per_node);
  if (!target.device_memory_bytes)
    return text + "; --device-memory, as in 80GiB, would leave out what does not fit";
  return text + ", each with " + device_memory_text(run, *target.device_memory_bytes);
}

// The heading of the mesh column: the axes that `named` names, as in "replicate x fsdp x tensor".
std::string axes_column(const MeshSizes& named) {
  return axes_text(" x ", [&](MeshAxis axis) { return named.is_named(axis) ? to_string(axis) : ""; });
}

// The keys of [mesh] that the search decides, each in `format`, joined by `between`.
std::string mesh_keys(const ResolvedRun& run, const SearchedJob& job, std::string_view between,
                      const char* format) {
  const auto text_of = [&](const char* key, int64_t value) {
    return fmt::format(fmt::runtime(format), key, value);
  };
  const int64_t stages_per_rank = run.step.sharding.stages_per_rank;
  const std::string axes = axes_text(between, [&](MeshAxis axis) {
    const bool is_said = run.mesh.is_named(axis) || (axis == MeshAxis::kPipeline && job.has_pipeline);
    return is_said ? text_of(to_string(axis), run.mesh[axis]) : "";
  });
  if (stages_per_rank == 1 && !job.has_pipeline) return axes;
  return fmt::format("{}{}{}", axes, between, text_of("pipeline_stages_per_rank", stages_per_rank));
}

// A row of the table. Its mesh column has the axes that `named` names.
std::string table_row(const ResolvedRun& run, const RunTarget& target, const MeshSizes& named) {
  const SentBytes sent = sent_bytes(run.plan.traffic_per_step, run.mesh, target.ranks_per_node);
  const std::optional<double> share = device_share(run, target);
  const std::string mesh = axes_text(" x ", [&](MeshAxis axis) {
    const bool has_two = axis == MeshAxis::kPipeline && run.step.sharding.stages_per_rank == 2;
    return named.is_named(axis) ? fmt::format("{}{}", run.mesh[axis], has_two ? " of 2 stages" : "") : "";
  });
  return fmt::format("{:>{}}  {:>11}  {:>6}  {:>6}  {:>9}  {:>10}  {:>6}  {:>10}  {:>10}{}\n", mesh,
                     axes_column(named).size(), run.step.sharding.sequence_count, run.micro_batches,
                     fmt::format("{:.1f}%", 100 * run.idle_share_in_all()),
                     to_string(run.step.sharding.recompute), bytes_text(run.memory().total()),
                     share ? fmt::format("{:.1f}%", 100 * *share) : "-", bytes_text(sent.inside_nodes),
                     bytes_text(sent.between_nodes),
                     run.time ? fmt::format("  {:>10}", seconds_text(run.time->seconds)) : "");
}

// The table's first row as config lines, and commands for a job file.
std::string lines_to_paste(const ResolvedRun& run, const RunTarget& target, const SearchedJob& job) {
  const std::vector<std::string> options = sbatch_options(job, target);
  return fmt::format(
      "\nThe first one, for {}:\n\n[mesh]\n{}\n\n[train]\n"
      "micro_batch_sequences = {}\nrecompute = \"{}\"\n{}\n"
      "For a job file of yours:\n\n#SBATCH {}\nsrun ripstop {}\n\n"
      "Or with ripstop's job file:\n\nsbatch {} slurm/train.sbatch {}\n",
      job.config_file, mesh_keys(run, job, "\n", "{} = {}"), run.step.sharding.sequence_count,
      to_string(run.step.sharding.recompute),
      run.mesh.pipeline > 1
          ? fmt::format("reshard_after_forward = {}\n", run.step.sharding.reshard_after_forward)
          : "",
      fmt::join(options, "\n#SBATCH "), train_words(job), fmt::join(options, " "),
      train_words(job).substr(std::string("train ").size()));
}

Json to_json(const FittingMesh& fitting) {
  return {{"mesh", fitting.mesh},
          {"ranks", fitting.mesh.ranks()},
          {"micro_batch_sequences", fitting.micro_batch_sequences},
          {"recompute", to_string(fitting.recompute)},
          {"bytes", fitting.bytes}};
}

Json to_json(const SetData& data, int64_t global_batch_sequences) {
  Json json = FieldWriter::to_json<DataCounts>(data);
  json["steps_per_epoch"] =
      static_cast<double>(data.epoch_sequences) / static_cast<double>(global_batch_sequences);
  return json;
}

void add_length(const RunConfig& config, const RunLength& length, const std::filesystem::path& continued,
                Json& document) {
  document["data"] = document["sets"] = nullptr;
  if (const std::optional<TrainingData>& data = length.data) {
    document["data"] = to_json(*data, config.train.global_batch_sequences);
    const std::vector<std::string> directories = config.data.all();
    const std::vector<double> shares = config.data.shares();
    for (size_t set = 0; set < data->sets.size() && directories.size() > 1; ++set) {
      Json one = to_json(data->sets[set], config.train.global_batch_sequences);
      one["directory"] = directories[set];
      one["share"] = shares.empty() ? Json(nullptr) : Json(shares[set]);
      one["epochs"] = shares.empty() ? data->epochs : data->sets[set].epochs;
      document["sets"].push_back(std::move(one));
    }
  }
  const bool has_epochs = length.data && length.data->epochs > 0;
  document["run"] = {{"epochs", has_epochs ? Json(length.data->epochs) : Json(nullptr)},
                     {"steps", FieldWriter::to_json(length.steps)},
                     {"tokens", length.data ? Json(length.data->tokens) : Json(nullptr)}};
  document["validation"] = {{"at_start", config.train.validate_at_start},
                            {"every_steps", config.train.validate_every},
                            {"stop_after", config.train.stop_after_validations}};
  const int64_t kept = length.kept_checkpoints + 1;
  const bool all = length.kept_checkpoints == 0;
  document["checkpoint"] = {{"bytes", length.checkpoint_bytes},
                            {"most_on_disk", all ? Json(nullptr) : Json(kept)},
                            {"most_bytes", all ? Json(nullptr) : Json(kept * length.checkpoint_bytes)}};
  document["continues"] = continued.empty() ? Json(nullptr) : Json(continued.string());
}

// The time of a step. Without `time` the run's own steps were timed: their exposed time is not known.
Json step_time_json(const std::optional<StepTime>& time, double step_seconds, double tokens_per_second) {
  return {{"step_seconds", step_seconds},
          {"exposed_seconds", time ? Json(time->exposed_seconds) : Json(nullptr)},
          {"tokens_per_second", tokens_per_second},
          {"left_out", time ? time->left_out : std::vector<std::string>{}}};
}

void add_time(const RunLength& length, const ResolvedRun& run, Json& document) {
  document["time"] = document["energy"] = nullptr;
  if (!length.speed) return;
  const std::optional<double> seconds = length.seconds();
  Json time = step_time_json(run.time, length.step_seconds(), length.speed->tokens_per_second);
  time["run_seconds"] = FieldWriter::to_json(seconds);
  time["node_hours"] = seconds && length.nodes > 0 ? Json(length.node_hours()) : Json(nullptr);
  time["source"] = length.speed->source;
  document["time"] = time;
  document["energy"]["kwh"] = FieldWriter::to_json(length.kwh());
}

Json pipeline_json(const ResolvedRun& run, DeviceKind device) {
  if (run.mesh.pipeline == 1) return nullptr;
  Json stages = Json::array();
  for (const StagePlan& each : plan_stages(run.request(device)))
    stages.push_back({{"layers", each.stage.layers},
                      {"embedding", each.stage.is_first},
                      {"head", each.stage.is_last},
                      {"bytes", each.bytes},
                      {"in_flight", each.in_flight}});
  return {{"stages", stages},
          {"stages_per_rank", run.step.sharding.stages_per_rank},
          {"idle_share", run.pipeline_idle_share}};
}

// The keys that documents of plans and rows of searches share. Memory, of the fullest rank, and traffic have
// the keys of metrics.jsonl.
Json to_json(const ResolvedRun& run, DeviceKind device) {
  Json cost = FieldWriter::to_json(StepCost{run.memory(), run.plan.traffic_per_step});
  if (run.summaries) cost["memory"]["only_while_validating"] = run.summaries_memory.total();
  return {{"mesh", run.mesh},
          {"memory", cost["memory"]},
          {"moments", to_string(run.step.adamw.moments)},
          {"traffic_per_step", cost["traffic_per_step"]},
          {"recompute", to_string(run.step.sharding.recompute)},
          {"recomputed_share", run.recomputed_share()},
          {"reshard_after_forward", run.step.sharding.reshard_after_forward},
          {"micro_batch_sequences", run.step.sharding.sequence_count},
          {"micro_batches_per_step", run.micro_batches},
          {"idle_share", run.idle_share},
          {"pipeline", pipeline_json(run, device)}};
}

Json row_json(const ResolvedRun& run, const RunTarget& target, double step_tokens) {
  const SentBytes sent = sent_bytes(run.plan.traffic_per_step, run.mesh, target.ranks_per_node);
  Json row = to_json(run, target.device);
  row["time"] = run.time && run.time->seconds > 0
                    ? step_time_json(run.time, run.time->seconds, step_tokens / run.time->seconds)
                    : Json(nullptr);
  row["device_share"] = FieldWriter::to_json(device_share(run, target));
  row["sent_per_step"] = {{"inside_nodes", sent.inside_nodes}, {"between_nodes", sent.between_nodes}};
  return row;
}

}  // namespace

std::string search_text(const MeshSearch& found, const RunTarget& target, const SearchedJob& job) {
  const auto shown = static_cast<int64_t>(found.rows.size());
  const std::string order =
      target.rates ? fmt::format("Best first: the shortest step, by {}{}.", target.rates->source,
                                 found.rows.front().time->left_out_text())
                   : fmt::format(
                         "Best first: the fewest percent lost (idle, or computed again), then the "
                         "fewest bytes between nodes, then\n"
                         "the fewest in all (up to {:.0f}% more are as few), then the larger "
                         "micro-batch.",
                         100 * (kAsFewBytes - 1));
  const MeshSizes& named = std::ranges::max_element(found.rows, {}, [](const ResolvedRun& run) {
                             return run.mesh.pipeline;
                           })->mesh;
  const std::string axes = axes_column(named);
  std::string text = fmt::format(
      "{}\n{}\n\n"
      "{:>{}}  {:>11}  {:>6}  {:>6}  {:>9}  {:>18}  {:>22}\n"
      "{}  {:>11}  {:>6}  {:>6}  {:>9}  {:>10}  {:>6}  {:>10}  {:>10}{}\n",
      job_line(found.rows.front(), target, job), order, "", axes.size(), "", "", "", "", "the fullest rank",
      "a rank sends in a step", axes, "micro-batch", "a step", "idle", "recompute", "memory", "share",
      "in a node", "between", target.rates ? "  step takes" : "");
  for (const ResolvedRun& run : found.rows) text += table_row(run, target, named);
  if (found.fitting > shown)
    text += fmt::format("{} more fit; --limit {} shows all\n", found.fitting - shown, found.fitting);
  return text + lines_to_paste(found.rows.front(), target, job);
}

std::string plan_document(const RunConfig& config, const ResolvedRun& run, const RunLength& length,
                          const RunTarget& target, const std::filesystem::path& continued) {
  Json document = to_json(run, target.device);
  document["fits"] = target.device_memory_bytes ? Json(true) : Json(nullptr);
  document["snapshot"] = {{"kept", run.snapshot.kept_bytes},
                          {"whole", run.snapshot.whole_bytes},
                          {"beside_device", run.snapshot.beside_device}};
  document["parameters"] = parameter_count(run.model);
  document["trained_parameters"] = run.trained_parameters();
  document["flops_per_token"] = run.flops_per_token().causal;
  document["flops_per_token_full_attention"] = run.flops_per_token().full_attention;
  document["head_chunk_rows"] = run.step.sharding.head_chunk_rows;
  document["threads_per_rank"] = cpu_threads();
  document["notes"] = run.notes;
  add_length(config, length, continued, document);
  add_time(length, run, document);
  return text_of_json(document, 2);
}

std::string refusal_document(const PlanTooLarge& error, const RunTarget& target) {
  const FittingMeshes& fitting = error.fitting();
  Json same_ranks = Json::array();
  for (const FittingMesh& each : fitting.same_ranks) same_ranks.push_back(to_json(each));
  const Json document{
      {"fits", false},
      {"refused", to_json(error.refused())},
      {"device_memory", FieldWriter::to_json(target.device_memory_bytes)},
      {"would_fit",
       {{"same_ranks", same_ranks},
        {"more_ranks", fitting.more_ranks ? to_json(*fitting.more_ranks) : Json(nullptr)},
        {"bfloat16_moments", fitting.bfloat16_moments ? to_json(*fitting.bfloat16_moments) : Json(nullptr)},
        {"device_memory", fitting.least.bytes},
        {"least", to_json(fitting.least)}}}};
  return text_of_json(document, 2);
}

std::string search_document(const MeshSearch& found, const RunTarget& target, const SearchedJob& job,
                            const std::vector<std::string>& notes) {
  const ResolvedRun& best = found.rows.front();
  Json rows = Json::array();
  for (const ResolvedRun& run : found.rows) rows.push_back(row_json(run, target, job.step_tokens));
  const Json document{
      {"nodes", job.nodes},
      {"ntasks_per_node", job.ranks_per_node},
      {"ranks", target.ranks},
      {"device_memory", FieldWriter::to_json(target.device_memory_bytes)},
      {"fits", target.device_memory_bytes ? Json(true) : Json(nullptr)},
      {"fitting", found.fitting},
      {"rows", rows},
      {"sbatch_options", sbatch_options(job, target)},
      {"command", fmt::format("ripstop {} {} train.micro_batch_sequences={} train.recompute={}",
                              train_words(job), mesh_keys(best, job, " ", "mesh.{}={}"),
                              best.step.sharding.sequence_count, to_string(best.step.sharding.recompute))},
      {"notes", notes}};
  return text_of_json(document, 2);
}

}  // namespace ripstop
