#include "train/generate/trained_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "parallel/agreement.h"
#include "train/exchange/read/adapted_base.h"
#include "train/machine/device_choice.h"
#include "train/machine/equal_ranks.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"

namespace ripstop {
namespace {

// Elements of the largest unit cut into `tensor` slices: the size of the staging buffer for loading, in
// floats.
int64_t largest_unit(const ModelConfig& config, int64_t tensor) {
  int64_t largest = 0;
  for (const UnitSpec& unit : parameter_table(config))
    largest = std::max(largest, UnitLayout(unit, tensor, 0, /*fsdp_count=*/1).elements());
  return largest;
}

// "runs/a" of "runs/a/checkpoints/step_00000060". Relative as people gave it: messages name the run.
std::filesystem::path run_of(const std::filesystem::path& checkpoint) {
  const auto is_name = [](const std::filesystem::path& path) {
    return path.has_filename() && path.filename() != "." && path.filename() != "..";
  };
  std::filesystem::path above = checkpoint.parent_path();
  // People stand inside: the names are not in the path. Links stay as they are: a step may lie elsewhere.
  if (!is_name(checkpoint) || !is_name(above)) {
    const std::filesystem::path whole = std::filesystem::absolute(checkpoint).lexically_normal();
    above = (whole.has_filename() ? whole : whole.parent_path()).parent_path();
  }
  if (above.filename() != "checkpoints") return above;
  return above.has_parent_path() ? above.parent_path() : std::filesystem::path(".");
}

void require_equal_ranks(MpiWorld& world, const InferenceOptions& options) {
  // Other builds or other instruction sets round differently, and one tensor group must compute alike.
  Communicator& all = world.communicator();
  const std::string& where = world.places()[static_cast<size_t>(all.rank())].host;
  require_equal_programs(all, where);
  require_equal(all, ExitCode::kResources, "precision", std::string(to_string(options.compute)), where,
                "use nodes of one kind");
}

}  // namespace

TrainedModel find_trained_model(Io& io, Communicator& world, const std::string& path,
                                const std::string& which, const BaseChoice& base,
                                std::span<const std::string> overrides) {
  std::string found;
  do_and_agree(world, [&] {
    // "latest" may change while a run trains: one rank looks, all take its answer.
    if (world.rank() == 0) found = find_stored_model(io, path, which).string();
  });
  found = text_of_rank_0(world, found);
  std::optional<TrainedModel> trained;
  do_and_agree(world, [&] {
    StoredModel stored = open_stored_model(io, found, base);
    RunConfig config = parse_run_config(stored.state().config, found, overrides);
    std::filesystem::path run = stored.is_pretrained() ? stored.directory() : run_of(stored.directory());
    trained.emplace(TrainedModel{std::move(stored), std::move(run), std::move(config)});
  });
  require_bases(world, trained->stored);
  if (!trained->stored.is_pretrained()) return *std::move(trained);
  // A checkpoint's blocks have hashes. Copies of a model on several nodes may differ, and their slices would
  // make a model of two.
  std::string hash;
  do_and_agree(world, [&] { hash = trained->stored.samples_hash(); });
  require_equal(world, ExitCode::kInputData, "the model", hash, fmt::format("rank {}", world.rank()),
                "make the same directory visible on every node");
  return *std::move(trained);
}

InferenceOptions inference_options(const TrainedModel& trained, const Device& device, int64_t slots,
                                   const GenerationSettings& settings) {
  const bool bfloat16 =
      trained.config.precision.compute == FloatChoice::kBfloat16 && has_fast_bfloat16(device);
  return InferenceOptions::of(trained.state().model, trained.config.data.sequence_length,
                              bfloat16 ? DType::kBFloat16 : DType::kFloat32, slots, settings);
}

MeshSizes inference_mesh(MpiWorld& world, const ModelConfig& config, const InferenceOptions& options,
                         const Device& device) {
  require_equal_ranks(world, options);
  const int64_t ranks = world.communicator().size();
  const int64_t share =
      std::max<int64_t>(free_memory_of_rank_bytes(world, device) - library_bytes(device.kind), 0);
  const int64_t weights = parameter_count(config) * element_bytes(options.compute);
  std::string needs;
  // The smallest tensor axis that fits: more replicas write more summaries at once.
  for (const int64_t tensor : tensor_axis_sizes(config)) {
    if (ranks % tensor != 0) continue;
    const MeshSizes mesh{.replicate = ranks / tensor, .fsdp = 1, .tensor = tensor};
    int64_t bytes = weights / tensor;
    // Plan only if the weights alone fit: a plan takes milliseconds a mesh.
    if (bytes <= share)
      bytes = plan_inference(config, options, mesh, {}, device.kind).memory.total() +
              4 * largest_unit(config, tensor);
    if (bytes <= share) return mesh;
    needs += fmt::format("{}{} on tensor {}", needs.empty() ? "" : ", ", bytes_text(bytes), tensor);
  }
  throw Error(ExitCode::kResources,
              fmt::format("a rank has {} of memory, the model needs at least {}", bytes_text(share), needs),
              "start more ranks on more nodes, or fewer on each");
}

LoadedModel::LoadedModel(Io& io, MpiWorld& world, const TrainedModel& trained,
                         const InferenceOptions& options, const Device& device)
    : mesh_(world, inference_mesh(world, trained.state().model, options, device),
            /*allow_tensor_across_nodes=*/false, device),
      stream_(device),
      model_(trained.state().model, options, mesh_, stream_, ledger_,
             plan_inference(trained.state().model, options, mesh_.sizes(), mesh_.coordinates(), device.kind)
                 .arena) {
  std::vector<FsdpUnit>& units = model_.model().units();
  std::vector<const UnitLayout*> layouts;
  for (const FsdpUnit& unit : units) layouts.push_back(&unit.layout());
  const int64_t largest = largest_unit(trained.state().model, mesh_.sizes().tensor);
  // Weights come through host memory one unit at a time, whatever the device is.
  const Buffer staging(Device::cpu(), ledger_, MemoryCategory::kWorkspace, 4 * largest);
  const std::string name = trained.stored.directory().filename().string();
  Progress progress(stderr);
  load_weights(io, trained.stored, mesh_.world(), layouts,
               {static_cast<float*>(staging.data()), static_cast<size_t>(largest)},
               [&](size_t unit, std::span<const float> weights) {
                 units[unit].set_shard(0, weights);
                 if (mesh_.world().rank() == 0)
                   progress.update("loading " + name, "unit", static_cast<int64_t>(unit) + 1,
                                   std::ssize(units));
               });
}

}  // namespace ripstop
