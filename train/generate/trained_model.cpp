#include "train/generate/trained_model.h"

#include <algorithm>

#include "parallel/start_up.h"
#include "train/checkpoint/checkpoint_directory.h"
#include "train/machine.h"
#include "train/progress.h"

namespace ripstop {
namespace {

constexpr std::int64_t kPrefillTokens = 2048;

// Memory that one of `ranks` processes on this machine may count on.
std::int64_t memory_share_bytes(std::int64_t ranks) {
  const Machine machine = look_at_machine();
  std::int64_t bytes = machine.memory_available_bytes;
  if (machine.memory_limit_bytes)
    bytes = std::min(bytes, *machine.memory_limit_bytes - machine.memory_limit_used_bytes.value_or(0));
  return bytes / ranks;
}

std::int64_t ranks_here(MpiWorld& world) {
  const auto& places = world.places();
  const std::int64_t node = places[static_cast<std::size_t>(world.communicator().rank())].node;
  return std::count_if(places.begin(), places.end(), [&](const auto& place) { return place.node == node; });
}

}  // namespace

TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which) {
  const std::string found = world.rank() == 0 ? find_checkpoint(io, path, which).string() : "";
  TrainedModel trained;
  trained.checkpoint.directory = world.all_gather_text(found).front();
  trained.checkpoint.manifest = read_manifest(io, trained.checkpoint.directory);
  const std::filesystem::path above = std::filesystem::absolute(trained.checkpoint.directory).parent_path();
  trained.run = above.filename() == "checkpoints" ? above.parent_path() : above;
  trained.config = parse_run_config(trained.checkpoint.manifest.state.config,
                                    (trained.checkpoint.directory / "manifest.json").string());
  return trained;
}

InferenceOptions inference_options(const TrainedModel& trained, std::int64_t slots,
                                   std::int64_t max_new_tokens) {
  const bool bfloat16 =
      trained.config.precision.compute == FloatChoice::kBfloat16 && look_at_machine().fast_bfloat16;
  const std::int64_t context = std::min(trained.config.data.sequence_length,
                                        trained.checkpoint.manifest.state.model.max_position_embeddings);
  if (max_new_tokens >= context)
    throw Error(
        ExitCode::kUsage,
        fmt::format("{} new tokens leave no room for a prompt: the model was trained on sequences of {}",
                    max_new_tokens, context),
        "generate fewer (--max-new-tokens)");
  return {.compute = bfloat16 ? DType::kBFloat16 : DType::kFloat32,
          .context = context,
          .slots = slots,
          .prefill_tokens = std::max(context, kPrefillTokens)};
}

MeshSizes inference_mesh(MpiWorld& world, const ModelConfig& config, const InferenceOptions& options) {
  const std::int64_t ranks = world.communicator().size();
  const std::int64_t share = least_of_all_ranks(world.communicator(), memory_share_bytes(ranks_here(world)));
  const std::int64_t weights = parameter_count(config) * 4;
  std::string needs;
  for (std::int64_t tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0 || config.num_attention_heads % tensor != 0 ||
        config.num_key_value_heads % tensor != 0)
      continue;
    const MeshSizes mesh{.replicate = ranks / tensor, .fsdp = 1, .tensor = tensor};
    std::int64_t bytes = weights / tensor;
    if (bytes <= share) bytes = plan_inference(config, options, mesh, {}, DeviceKind::kCpu).memory.total();
    if (bytes <= share) return mesh;
    needs += fmt::format("{}{} on tensor {}", needs.empty() ? "" : ", ", bytes_text(bytes), tensor);
  }
  throw Error(ExitCode::kResources,
              fmt::format("a rank has {} of memory, the model needs at least {}", bytes_text(share), needs),
              "start more ranks on more nodes, or fewer on each");
}

LoadedModel::LoadedModel(Io& io, MpiWorld& world, const TrainedModel& trained,
                         const InferenceOptions& options)
    : mesh_(world, inference_mesh(world, trained.checkpoint.manifest.state.model, options)),
      stream_(Device::cpu()),
      model_(trained.checkpoint.manifest.state.model, options, mesh_, stream_, ledger_,
             plan_inference(trained.checkpoint.manifest.state.model, options, mesh_.sizes(),
                            mesh_.coordinates(), DeviceKind::kCpu)
                 .arena) {
  std::vector<UnitStates> units;
  for (const FsdpUnit& unit : model_.model().units())
    units.push_back({.layout = &unit.layout(), .master = unit.master().as<float>()});
  load_checkpoint(io, trained.checkpoint, mesh_.world(), /*fsdp_index=*/0, units);
  model_.model().weights_changed(model_.arena());
}

}  // namespace ripstop
