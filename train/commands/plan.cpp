// ripstop plan: what a step will need, before any of it is started.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/token_dataset.h"
#include "model/device/cuda_machine.h"
#include "train/commands/commands.h"
#include "train/machine.h"
#include "train/resolved_run.h"

namespace ripstop {
namespace {

nlohmann::ordered_json to_json(const ResolvedRun& run, const FlopsPerToken& flops) {
  const MemoryUse use = run.memory();
  nlohmann::ordered_json memory;
  for (int c = 0; c < kMemoryCategories; ++c) {
    const auto category = static_cast<MemoryCategory>(c);
    memory[memory_category_name(category)] = use[category];
  }
  memory["total"] = use.total();
  if (run.summaries) memory["only_while_validating"] = run.summaries_memory.total();
  const auto& traffic = run.plan.traffic_per_step;
  return {{"mesh", {{"replicate", run.mesh.replicate}, {"fsdp", run.mesh.fsdp}, {"tensor", run.mesh.tensor}}},
          {"memory", memory},
          {"traffic_per_step",
           {{"replicate", traffic.replicate}, {"fsdp", traffic.fsdp}, {"tensor", traffic.tensor}}},
          {"parameters", parameter_count(run.model)},
          {"flops_per_token", flops.causal},
          {"flops_per_token_full_attention", flops.full_attention},
          {"micro_batch_sequences", run.step.sharding.sequences},
          {"micro_batches_per_step", run.micro_batches},
          {"idle_share", run.idle_share}};
}

void print_for_people(const ResolvedRun& run, const RunTarget& target, const FlopsPerToken& flops) {
  fmt::print("mesh            {} ({} ranks)\n", run.mesh.to_text(), run.mesh.ranks());
  fmt::print("parameters      {}\n", parameter_count(run.model));
  fmt::print("flops per token {:.4g} (causal)\n", flops.causal);
  fmt::print("micro-batch     {} packs, {} a step{}\n", run.step.sharding.sequences, run.micro_batches,
             run.idle_share > 0 ? fmt::format(", {:.1f}% idle", 100 * run.idle_share) : "");
  fmt::print("the fullest rank, computing in {}:\n{}\n", dtype_name(run.step.sharding.compute),
             plan_text(run, target.device_memory_bytes));
  for (const std::string& note : run.notes) fmt::print("note: {}\n", note);
}

/// The data set's vocabulary where there is one; a plan can do without.
std::int64_t vocabulary_at(const std::string& directory) {
  const std::filesystem::path file = std::filesystem::path(directory) / "train.h5";
  if (directory.empty() || !std::filesystem::exists(file)) return 0;
  return TokenDataset(file).header().vocabulary_size;
}

}  // namespace

ExitCode run_plan(CLI::App& app, const Arguments& arguments) {
  std::string config_file, device;
  std::vector<std::string> overrides;
  std::int64_t nodes = 0, tasks = 0;
  std::uint64_t device_memory = 0;
  bool json = false;
  app.add_option("CONFIG", config_file, "TOML file")->required();
  app.add_option("overrides", overrides, "section.key=value, stronger than the file");
  app.add_option("--nodes", nodes, "nodes of the job")->check(CLI::Range(1, 1 << 20));
  app.add_option("--ntasks-per-node", tasks, "ranks on each node")->check(CLI::Range(1, 1 << 16));
  app.add_option("--device", device,
                 "cpu or cuda; default run.device, auto being what this build and machine have")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--device-memory", device_memory, "for one rank: 64GiB, 80GB; refuses what does not fit")
      ->transform(CLI::AsSizeValue(false));
  app.add_flag("--json", json, "one JSON document");
  set_example(app,
              "ripstop plan configs/xsum-scratch.toml --nodes 4 --ntasks-per-node 8 --device cuda "
              "--device-memory 80GiB");
  parse(app, arguments);

  const RunConfig config = load_run_config(config_file, overrides);
  RunTarget target;
  const std::int64_t asked = config.mesh.replicate * config.mesh.fsdp.value_or(1) * config.mesh.tensor;
  target.ranks =
      nodes > 0 || tasks > 0 ? std::max<std::int64_t>(nodes, 1) * std::max<std::int64_t>(tasks, 1) : asked;
  const bool automatic = device.empty() && config.run.device == DeviceChoice::kAuto;
  const bool cuda = device == "cuda" || (device.empty() && config.run.device == DeviceChoice::kCuda) ||
                    (automatic && cuda_device_count() > 0);
  target.device = cuda ? DeviceKind::kCuda : DeviceKind::kCpu;
  target.fast_bfloat16 = cuda || look_at_machine().fast_bfloat16;
  if (device_memory > 0) target.device_memory_bytes = static_cast<std::int64_t>(device_memory);
  target.dataset_vocabulary = vocabulary_at(config.data.directory);
  if (tasks > 0 && tasks % config.mesh.tensor != 0 && !config.mesh.allow_tensor_across_nodes)
    throw Error(
        ExitCode::kResources,
        fmt::format("mesh.tensor = {} does not divide the {} ranks of a node", config.mesh.tensor, tasks),
        "a tensor group must lie inside one node, or set mesh.allow_tensor_across_nodes");

  const ResolvedRun run = resolve_run(config, target);
  const FlopsPerToken flops = training_flops_per_token(run.model, config.data.sequence_length);
  if (json)
    fmt::print("{}\n", to_json(run, flops).dump(2));
  else
    print_for_people(run, target, flops);
  return ExitCode::kOk;
}

}  // namespace ripstop
