#include "train/commands/plan_json.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "model/kernels/cpu/processor.h"

namespace ripstop {
namespace {

using Json = nlohmann::ordered_json;

// null stands for what is not known.
template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const FittingMesh& fitting) {
  return {{"mesh", fitting.mesh},
          {"ranks", fitting.mesh.ranks()},
          {"micro_batch_sequences", fitting.micro_batch_sequences},
          {"recompute", to_string(fitting.recompute)},
          {"bytes", fitting.bytes}};
}

// Adds the members about the length of the run.
void add_length(const RunConfig& config, const RunLength& length, Json& document) {
  document["data"] = nullptr;
  if (const std::optional<TrainingData>& data = length.data)
    document["data"] = {{"examples", data->examples},
                        {"cut_documents", data->cut_documents},
                        {"cut_summaries", data->cut_summaries},
                        {"cut_tokens", data->cut_tokens},
                        {"sequences_per_epoch", data->epoch_sequences},
                        {"steps_per_epoch", static_cast<double>(data->epoch_sequences) /
                                                static_cast<double>(config.train.global_batch_sequences)},
                        {"tokens_per_epoch", data->epoch_tokens}};
  document["run"] = {{"epochs", length.data ? Json(length.data->epochs) : Json(nullptr)},
                     {"steps", json_of(length.steps)},
                     {"tokens", length.data ? Json(length.data->tokens) : Json(nullptr)}};
  document["validation"] = {{"at_start", config.train.validate_at_start},
                            {"every_steps", config.train.validate_every},
                            {"stop_after", config.train.stop_after_validations}};
  const int64_t kept = config.checkpoint.keep + 1;
  const bool all = config.checkpoint.keep == 0;
  document["checkpoint"] = {{"bytes", length.checkpoint_bytes},
                            {"most_on_disk", all ? Json(nullptr) : Json(kept)},
                            {"most_bytes", all ? Json(nullptr) : Json(kept * length.checkpoint_bytes)}};
  document["time"] = nullptr;
  if (const std::optional<double> seconds = length.seconds())
    document["time"] = {{"seconds", *seconds},
                        {"tokens_per_second", length.speed->tokens_per_second},
                        {"utilization", json_of(length.speed->utilization)},
                        {"source", length.speed->source}};
}

Json to_json(const PlanTooLarge& error, const RunTarget& target) {
  const FittingMeshes& fitting = error.fitting();
  Json same_ranks = Json::array();
  for (const FittingMesh& each : fitting.same_ranks) same_ranks.push_back(to_json(each));
  return {
      {"fits", false},
      {"refused", to_json(error.refused())},
      {"device_memory", json_of(target.device_memory_bytes)},
      {"would_fit",
       {{"same_ranks", same_ranks},
        {"more_ranks", fitting.more_ranks ? to_json(*fitting.more_ranks) : Json(nullptr)},
        {"bfloat16_moments", fitting.bfloat16_moments ? to_json(*fitting.bfloat16_moments) : Json(nullptr)},
        {"device_memory", fitting.least.bytes},
        {"least", to_json(fitting.least)}}}};
}

Json memory_json(const ResolvedRun& run) {
  const MemoryUse use = run.memory();
  Json memory;
  for (const MemoryCategory category : kMemoryCategories) memory[to_string(category)] = use[category];
  memory["total"] = use.total();
  if (run.summaries) memory["only_while_validating"] = run.summaries_memory.total();
  return memory;
}

Json snapshot_json(const SnapshotPlan& plan) {
  return {{"kept", plan.kept_bytes}, {"whole", plan.whole_bytes}, {"beside_device", plan.beside_device}};
}

Json to_json(const ResolvedRun& run, const RunTarget& target, const FlopsPerToken& flops) {
  return {{"mesh", run.mesh},
          {"fits", target.device_memory_bytes ? Json(true) : Json(nullptr)},
          {"memory", memory_json(run)},
          {"snapshot", snapshot_json(run.snapshot)},
          {"moments", to_string(run.step.adamw.moments)},
          {"traffic_per_step", run.plan.traffic_per_step},
          {"parameters", parameter_count(run.model)},
          {"trained_parameters", run.trained_parameters()},
          {"flops_per_token", flops.causal},
          {"flops_per_token_full_attention", flops.full_attention},
          {"recompute", to_string(run.step.sharding.recompute)},
          {"recomputed_share", run.recomputed_share()},
          {"micro_batch_sequences", run.step.sharding.sequence_count},
          {"micro_batches_per_step", run.micro_batches},
          {"head_chunk_rows", run.step.sharding.head_chunk_rows},
          {"idle_share", run.idle_share},
          {"threads_per_rank", cpu_threads()},
          {"notes", run.notes}};
}

Json row_json(const ResolvedRun& run, const RunTarget& target) {
  const SentBytes sent = sent_bytes(run.plan.traffic_per_step, run.mesh, target.ranks_per_node);
  return {{"mesh", run.mesh},
          {"micro_batch_sequences", run.step.sharding.sequence_count},
          {"micro_batches_per_step", run.micro_batches},
          {"idle_share", run.idle_share},
          {"recompute", to_string(run.step.sharding.recompute)},
          {"recomputed_share", run.recomputed_share()},
          {"memory", memory_json(run)},
          {"moments", to_string(run.step.adamw.moments)},
          {"device_share", json_of(device_share(run, target))},
          {"traffic_per_step", run.plan.traffic_per_step},
          {"sent_per_step", {{"inside_nodes", sent.inside_nodes}, {"between_nodes", sent.between_nodes}}}};
}

}  // namespace

std::string plan_document(const RunConfig& config, const ResolvedRun& run, const RunLength& length,
                          const RunTarget& target, const FlopsPerToken& flops) {
  Json document = to_json(run, target, flops);
  add_length(config, length, document);
  return document.dump(2);
}

std::string refusal_document(const PlanTooLarge& error, const RunTarget& target) {
  return to_json(error, target).dump(2);
}

std::string search_document(const MeshSearch& found, const RunTarget& target, const SearchedJob& job,
                            const std::vector<std::string>& notes) {
  Json rows = Json::array();
  for (const ResolvedRun& run : found.rows) rows.push_back(row_json(run, target));
  const Json document{
      {"nodes", job.nodes},
      {"ntasks_per_node", job.ranks_per_node},
      {"ranks", target.ranks},
      {"device_memory", json_of(target.device_memory_bytes)},
      {"fits", target.device_memory_bytes ? Json(true) : Json(nullptr)},
      {"fitting", found.fitting},
      {"rows", rows},
      {"sbatch_options", sbatch_options(job, target)},
      {"command", fmt::format("ripstop {} {}", train_words(job), mesh_overrides(found.rows.front()))},
      {"notes", notes}};
  return document.dump(2);
}

}  // namespace ripstop
