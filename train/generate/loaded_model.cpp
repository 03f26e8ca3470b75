#include "train/generate/loaded_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/agreement.h"
#include "train/exchange/read/weights_reader.h"
#include "train/machine/device_choice.h"
#include "train/machine/equal_ranks.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"

namespace ripstop {
namespace {

int64_t largest_unit(const ModelConfig& config, int64_t tensor) {
  int64_t largest = 0;
  for (const UnitSpec& unit : parameter_table(config))
    largest = std::max(largest, UnitLayout(unit, tensor, 0, /*fsdp_count=*/1).elements());
  return largest;
}

MeshSizes inference_mesh(MpiWorld& world, const ModelConfig& config, const InferenceOptions& options,
                         const Device& device) {
  // Builds and instruction sets round differently, and the ranks of a tensor group must round alike.
  Communicator& all = world.communicator();
  const std::string& where = world.places()[static_cast<size_t>(all.rank())].host;
  require_equal_programs(all, where);
  require_equal(all, ExitCode::kResources, "precision", std::string(to_string(options.compute)), where,
                "use nodes of one kind");
  const int64_t share =
      std::max<int64_t>(free_memory_of_rank_bytes(world, device) - library_bytes(device.kind), 0);
  std::string needs;
  // Takes the smallest tensor axis that fits, because more replicas write more summaries at once.
  for (const int64_t tensor : tensor_axis_sizes(config)) {
    if (all.size() % tensor != 0) continue;
    const MeshSizes mesh{.replicate = all.size() / tensor, .fsdp = 1, .tensor = tensor};
    const int64_t bytes = plan_inference(config, options, mesh, {}, device.kind).memory.total() +
                          4 * largest_unit(config, tensor);
    if (bytes <= share) return mesh;
    needs += fmt::format("{}{} on tensor {}", needs.empty() ? "" : ", ", bytes_text(bytes), tensor);
  }
  throw Error(ExitCode::kResources,
              fmt::format("a rank has {} of memory, the model needs at least {}", bytes_text(share), needs),
              "start more ranks on more nodes, or fewer on each");
}

}  // namespace

InferenceOptions inference_options(const TrainedModel& trained, const Device& device, int64_t slots,
                                   const GenerationSettings& settings, int64_t pieces) {
  const bool bfloat16 =
      trained.config.precision.compute == FloatChoice::kBfloat16 && has_fast_bfloat16(device);
  return InferenceOptions::of(trained.state().model, trained.config.data.sequence_length,
                              bfloat16 ? DType::kBFloat16 : DType::kFloat32, slots, settings, pieces);
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
  const int64_t largest = largest_unit(trained.state().model, mesh_.sizes().tensor);
  // Weights go through host memory one unit at a time, on every device.
  const Buffer staging(Device::cpu(), ledger_, MemoryCategory::kWorkspace, 4 * largest);
  const std::string name = trained.stored.directory().filename().string();
  Progress progress(stderr);
  do_and_agree(mesh_.world(), [&] {
    for (size_t u = 0; u < units.size(); ++u) {
      const UnitStates unit{.layout = &units[u].layout(), .master = static_cast<float*>(staging.data())};
      read_weights(io, trained.stored, /*fsdp_index=*/0, {&unit, 1});
      units[u].set_shard(0, {unit.master, static_cast<size_t>(unit.layout->elements())});
      if (mesh_.world().rank() == 0)
        progress.update("loading " + name, "unit", static_cast<int64_t>(u) + 1, std::ssize(units));
    }
  });
}

}  // namespace ripstop
