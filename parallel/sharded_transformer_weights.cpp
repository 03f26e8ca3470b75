#include <algorithm>
#include <utility>

#include "model/core/rounding.h"
#include "parallel/sharded_transformer.h"
#include "parallel/tensor_parallel.h"

namespace ripstop {
namespace {

struct UnitSlots {
  bool weights = false, gradients = false;
  int64_t largest = 0, largest_frozen = 0;  // elements of the largest trained and the largest frozen unit
  // Bytes of scratch for a reduction over the fsdp axis and for a sum over the replicas.
  int64_t reduce_bytes = 0, sum_bytes = 0;
  MemoryUse use{};
};

UnitSlots unit_slots(const std::vector<UnitSpec>& table, const std::vector<size_t>& places,
                     const DeviceMesh& mesh, const ShardingOptions& options) {
  const bool sharded = mesh.fsdp_gather().size() > 1;
  UnitSlots slots{.weights = sharded && options.reshard_after_forward,
                  .gradients = sharded && options.training};
  for (const size_t place : places) {
    const UnitSpec& unit = table[place];
    const UnitLayout layout(unit, mesh.tensor().size(), mesh.tensor().rank(), mesh.fsdp_gather().size());
    int64_t& largest = unit.frozen ? slots.largest_frozen : slots.largest;
    largest = std::max(largest, layout.elements());
    slots.use += FsdpUnit::memory_use(layout, options.compute, options.training, sharded && !slots.weights);
    if (options.training && !unit.frozen && mesh.replicate().size() > 1)
      slots.sum_bytes = std::max(
          slots.sum_bytes,
          round_up(
              FsdpUnit::sum_needs(layout.shard_elements(), options.reduce, mesh.replicate()).scratch_bytes,
              kMemoryAlignment));
  }
  slots.use[MemoryCategory::kCommunication] += kUnitSlots * slots.sum_bytes;
  // Frozen units have slots of their own, because they are much larger than the units of adapters.
  const int64_t elements = kUnitSlots * slots.largest;
  if (slots.weights)
    slots.use[MemoryCategory::kWeights] +=
        (elements + kUnitSlots * slots.largest_frozen) * element_bytes(options.compute);
  if (!slots.gradients) return slots;
  slots.use[MemoryCategory::kGradients] += elements * element_bytes(DType::kFloat32);
  slots.reduce_bytes = mesh.fsdp_reduce().reduce_scatter_scratch_bytes(slots.largest, options.reduce);
  slots.use[MemoryCategory::kCommunication] += slots.reduce_bytes;
  return slots;
}

}  // namespace

PipelineSizes pipeline_sizes(const MeshSizes& mesh, const ShardingOptions& options, int64_t micro_batches) {
  return {.ranks = mesh.pipeline,
          .stages_per_rank = mesh.pipeline > 1 ? options.stages_per_rank : 1,
          .micro_batches = micro_batches,
          .ahead = options.pipeline_ahead};
}

StageSplit stage_split(const ModelConfig& config, const MeshSizes& mesh, const ShardingOptions& options) {
  StageSplit split = split_stages(config, options.sequence_length, /*target_share=*/1, mesh.pipeline,
                                  pipeline_sizes(mesh, options, 1).stages_per_rank);
  return options.stage_layers.empty() ? split : with_layers(std::move(split), options.stage_layers);
}

ShardedTransformer::ShardedTransformer(const ModelConfig& config, DeviceMesh& mesh, const Stream& stream,
                                       MemoryLedger& ledger, const ShardingOptions& options)
    : config_(config),
      options_(options),
      mesh_(mesh),
      stream_(stream),
      split_(stage_split(config, mesh.sizes(), options)),
      whole_table_(split_.staged(unit_table(config, options.lora))),
      stages_(split_.of_rank(mesh.coordinates().pipeline)),
      places_(split_.units_of_rank(mesh.coordinates().pipeline, whole_table_.size())),
      numbers_(whole_table_.size(), places_.size()),  // units of other stages: no number
      first_trained_(static_cast<size_t>(
          std::ranges::count_if(places_, [&](size_t place) { return whole_table_[place].frozen; }))),
      tensor_axis_(options.training ? make_sequence_axis(mesh.tensor(), options.overlap_tensor)
                                    : make_replicated_axis(mesh.tensor())),
      model_(config, options.lora, mesh.tensor().size(), mesh.tensor().rank(), options.sequence_length,
             stream, ledger) {
  RIPSTOP_CHECK(stages_.size() == 1 || (mesh.links().activations_in && mesh.links().activations_out),
                "the mesh has no links for {} stages", split_.layers.size());
  model_.head.chunk_rows = options.head_chunk_rows;
  const int64_t tensor_count = mesh.tensor().size(), tensor_index = mesh.tensor().rank();
  const UnitSlots slots = unit_slots(whole_table_, places_, mesh, options);
  memory_ = std::make_unique<GroupMemory>(
      stream.device(), ledger, slots.use,
      std::initializer_list<Communicator*>{&mesh.fsdp_gather(), &mesh.fsdp_reduce()});
  const auto pool = [&](bool is_needed, MemoryCategory category, DType dtype, int64_t elements) {
    return is_needed ? std::make_unique<SlotPool>(*memory_, category, kUnitSlots, dtype, elements) : nullptr;
  };
  weight_slots_ = pool(slots.weights, MemoryCategory::kWeights, options.compute, slots.largest);
  frozen_slots_ =
      pool(slots.weights && is_frozen(), MemoryCategory::kWeights, options.compute, slots.largest_frozen);
  gradient_slots_ = pool(slots.gradients, MemoryCategory::kGradients, DType::kFloat32, slots.largest);
  const Tensor scratch =
      slots.gradients ? memory_->take(MemoryCategory::kCommunication, DType::kInt32, {slots.reduce_bytes / 4})
                      : Tensor{};
  sum_slots_ = pool(slots.sum_bytes > 0, MemoryCategory::kCommunication, DType::kInt32, slots.sum_bytes / 4);
  UnitResources resources{.memory = *memory_,
                          .stream = stream,
                          .gather = mesh.fsdp_gather(),
                          .reduce = mesh.fsdp_reduce(),
                          .replicate = mesh.replicate(),
                          .weight_slots = weight_slots_.get(),
                          .gradient_slots = gradient_slots_.get(),
                          .reduce_scratch = scratch,
                          .sum_slots = sum_slots_.get(),
                          .compute = options.compute,
                          .travel = options.reduce,
                          .training = options.training};
  units_.reserve(places_.size());
  for (const size_t place : places_) {
    const UnitSpec& unit = whole_table_[place];
    numbers_[place] = units_.size();
    resources.weight_slots = unit.frozen ? frozen_slots_.get() : weight_slots_.get();
    units_.emplace_back(unit, model_.parameters(place), tensor_count, tensor_index, resources);
  }
  memory_->check_all_taken();
  if (options.training && !trained_units().empty())
    norm_.emplace(stream, ledger, trained_units().size(),
                  divide_up(slots.largest, mesh.fsdp_gather().size()));
}

ShardedTransformer::~ShardedTransformer() = default;

void ShardedTransformer::initialize(uint64_t seed, std::span<FsdpUnit> units, InitialValues values) {
  if (stream_.device().kind == DeviceKind::kMeta) return;
  constexpr int64_t kPiece = 1 << 18;  // elements on the host at a time
  std::vector<float> host;
  for (FsdpUnit& unit : units)
    for (int64_t first = 0; first < unit.layout().shard_elements(); first += kPiece) {
      const int64_t begin = unit.shard_begin() + first,
                    end = std::min(begin + kPiece, unit.shard_begin() + unit.layout().shard_elements());
      host.assign(static_cast<size_t>(end - begin), 0.0F);
      for (const Box& box : unit.layout().boxes(begin, end))
        for (int64_t row = 0; row < box.rows; ++row)
          values(*box.parameter, seed, (box.row + row) * box.parameter->columns + box.column, box.columns,
                 host.data() + box.offset + row * box.stride - begin);
      unit.set_shard(first, host);
    }
}

void ShardedTransformer::weights_changed(Arena& arena) {
  Context context = this->context(arena);
  for (FsdpUnit& unit : units_) {
    // With float32 there is no copy; with bfloat16, units that are not trained have no master weights.
    if (!unit.master().empty() && !unit.compute_copy().empty())
      convert(context, unit.master(), unit.compute_copy());
    unit.weights_changed();
  }
}

void ShardedTransformer::copy_weights_to(ShardedTransformer& whole) {
  RIPSTOP_CHECK(whole.mesh_.tensor().size() == mesh_.tensor().size() &&
                    whole.mesh_.tensor().rank() == mesh_.tensor().rank(),
                "slice {} of {} to {} of {}", mesh_.tensor().rank(), mesh_.tensor().size(),
                whole.mesh_.tensor().rank(), whole.mesh_.tensor().size());
  stream_.wait_for(whole.stream_);  // work of `whole` may still read the old weights
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].unshard();
    if (u + 1 < units_.size()) units_[u + 1].unshard();
    units_[u].wait();
    units_[u].copy_whole_to(whole.units_[places_[u]]);
    units_[u].reshard();
  }
  if (mesh_.sizes().pipeline > 1)
    for (size_t place = 0; place < whole_table_.size(); ++place)
      send_to_stages(whole.units_[place], whole_table_[place].stage);
  whole.stream_.wait_for(stream_);
}

// Each rank of the stage that has the unit sends one part to the other stages, whose fsdp groups gather
// the parts. So the slow links between stages carry the unit once for each group, not for each rank.
void ShardedTransformer::send_to_stages(FsdpUnit& unit, int64_t holder) {
  Communicator &pipeline = mesh_.pipeline(), &gather = mesh_.fsdp_gather();
  const Tensor& whole = unit.own_shard();
  const int64_t count = whole.count() / gather.size(), parts = count * gather.size();
  const Tensor part = whole.row_range(gather.rank() * count, count);
  pipeline.broadcast(stream_, part, holder);
  if (parts < whole.count())
    pipeline.broadcast(stream_, whole.row_range(parts, whole.count() - parts), holder);
  if (pipeline.rank() == holder) return;
  gather.all_gather(stream_, part, whole.row_range(0, parts)).wait();
  unit.weights_changed();
}

}  // namespace ripstop
