#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/kv_cache.h"
#include "model/transformer.h"
#include "parallel/device_mesh.h"
#include "parallel/fsdp_unit.h"
#include "parallel/gradient_norm.h"

namespace ripstop {

struct ShardingOptions {
  DType compute = DType::kBFloat16;  ///< dtype of activations and gathered weights
  DType reduce = DType::kFloat32;    ///< dtype in which gradients are sent over the fsdp axis
  int64_t sequence_count = 1;        ///< the largest number of sequences in a micro-batch
  int64_t sequence_length = 0;       ///< the largest number of tokens in a sequence
  bool reshard_after_forward = true;
  Recompute recompute = Recompute::kNone;
  /// The argument `overlap` of make_sequence_axis().
  bool overlap_tensor = false;
  /// Rows whose logits the head computes at a time.
  int64_t head_chunk_rows = HeadLoss::kChunkRows;
  bool training = true;  ///< false: no gradients, and the tensor axis does not cut the rows
  LoraConfig lora = {};  ///< if enabled, adapters are trained, and the model's own weights are frozen
};

/// Slots in each SlotPool: one for the unit that computes, one for a unit that is gathered or reduced.
inline constexpr int64_t kUnitSlots = 2;

/// A transformer whose parameters are sharded over the fsdp axis and sliced over the tensor axis. Owns the
/// layers, the units and their slots; activations lie in the caller's arena. All members that compute are
/// collective over the mesh.
class ShardedTransformer {
 public:
  /// Allocates everything but activations. Weights are zero at first. Throws Error(kResources) if the mesh
  /// cannot cut the model or the device has too little memory.
  ShardedTransformer(const ModelConfig& config, DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger,
                     const ShardingOptions& options);
  ~ShardedTransformer();

  /// Fills the weights with initial_values.
  void initialize(uint64_t seed) { initialize(seed, units_); }
  /// Fills only the weights of `units`, which belong to this model.
  void initialize(uint64_t seed, std::span<FsdpUnit> units);

  /// Begins a step: the next gradients overwrite the old ones.
  void begin_step();

  /// Runs one micro-batch forward and backward. Adds the loss of this rank's targets to total [1] float64,
  /// and the gradient of this loss to the shards. With `last`, the last micro-batch of the step, also sums
  /// the shards over the replicas. Read this function first.
  void forward_backward(Arena& arena, const Batch& batch, bool last, const Tensor& total);

  /// Completes the gradients of the step. Sums the gradients of replicated parameters over the tensor axis,
  /// and adds the squared norm of this rank's shards to total [1] float64. In the sum of `total` over the
  /// world, each logical element counts once.
  void finish_gradients(Arena& arena, const Tensor& total);

  /// Runs forward only. Adds the loss of this rank's targets to total [1] float64.
  void evaluate(Arena& arena, const Batch& batch, const Tensor& total);

  /// Runs forward only. Writes logits [N, V / t] float32 of this rank's slice of the vocabulary for all N
  /// rows.
  void logits(Arena& arena, const Batch& batch, const Tensor& logits);

  /// Runs prompts, stores their keys and values at `slot` [N] (int32) and the batch's positions, and writes
  /// the scores of the tokens after the rows in `row` [M], as HeadLoss::predict does. Needs training = false.
  void prefill(Arena& arena, const Batch& batch, KeyValueCache& cache, const Tensor& slot, const Tensor& row,
               const NextTokenScores& scores);

  /// Runs one new token [S] of each of S sequences with the cache places `rows` (rows.cache is not read), and
  /// writes the scores of the next token, as HeadLoss::predict does. Needs training = false.
  void decode(Arena& arena, const Tensor& token, KeyValueCache& cache, const CacheRows& rows,
              const NextTokenScores& scores);

  /// Renews the bfloat16 copies from the master weights. Call it after writing master weights, before the
  /// next forward.
  void weights_changed(Arena& arena);

  /// Gathers the units one by one and copies the weights to `whole`: the same model with the same tensor axis
  /// and compute dtype, but an fsdp axis of 1. Every rank gets its whole slice. In stream order. Collective
  /// over the fsdp axis.
  void copy_weights_to(ShardedTransformer& whole);

  /// Calls ripstop::prepare_attention for the forward of micro-batches of these sizes and, if `backward`, for
  /// their backward. Returns the number of plans made.
  int64_t prepare_attention(int64_t documents, int64_t longest, bool backward) const;

  /// All units of the model, in the order of unit_table.
  std::vector<FsdpUnit>& units() { return units_; }
  const std::vector<UnitSpec>& table() const { return table_; }
  /// trained_units() are in the order of trained_table.
  std::span<FsdpUnit> trained_units() { return std::span(units_).subspan(first_trained_); }
  std::span<FsdpUnit> frozen_units() { return std::span(units_).first(first_trained_); }
  /// Units of the model's own weights, in the order of parameter_table.
  std::span<FsdpUnit> model_units() { return is_frozen() ? frozen_units() : trained_units(); }
  const ModelConfig& config() const { return config_; }
  const ShardingOptions& options() const { return options_; }
  DeviceMesh& mesh() { return mesh_; }
  Context context(Arena& arena, const DropoutPlace* dropout = nullptr) const {
    return {stream_, arena, *tensor_axis_, dropout};
  }

 private:
  /// Units of parameter_table in the order of a pass over the layers; a visit includes the unit's adapters.
  /// Only the first `with_weights` visits need weights: the embedding's backward, the last visit of a
  /// training pass, only writes the gradient.
  struct Visits {
    std::vector<size_t> units;
    size_t with_weights = 0;
    size_t operator[](size_t visit) const { return units[visit]; }
    size_t back() const { return units.back(); }
  };
  Visits forward_visits() const;
  Visits training_visits() const;
  using BlockBody = FunctionRef<void(size_t layer, Residual& residual, const Block::Saved& saved)>;
  using HeadBody = FunctionRef<void(Residual& residual, const HeadLoss::Saved& saved)>;
  void forward_only(Context& context, const Tensor& token, BlockBody block, HeadBody head);
  void forward_batch(Context& context, const Batch& batch, HeadBody head);
  void sum_replicated(Context& context);
  std::optional<size_t> adapters_of(size_t unit) const;
  std::optional<size_t> trained_of(size_t unit) const;
  template <class Body>
  void each_unit(size_t unit, Body body);
  bool is_frozen() const { return first_trained_ > 0; }
  // Whether the gradient of the layer's input is needed: below the first layer there is only the embedding,
  // which may be frozen.
  InputGradient below(size_t layer) const { return InputGradient{layer > 0 || !is_frozen()}; }
  std::string visit_name(const Visits& visits, size_t visit) const;
  void enter(const Visits& visits, size_t visit);
  void leave(const Visits& visits, size_t visit);
  void begin_gradients(Context& context, size_t unit);
  void reduce_gradients(size_t unit, bool last);
  void finish_reduction();
  void start_sum();
  void finish_oldest_sum();
  void finish_reductions();
  void start_norm(size_t unit);
  void poll();

  ModelConfig config_;
  ShardingOptions options_;
  DeviceMesh& mesh_;
  const Stream& stream_;
  std::vector<UnitSpec> table_;
  size_t first_trained_;
  std::unique_ptr<TensorAxis> tensor_axis_;
  Transformer model_;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<SlotPool> weight_slots_, frozen_slots_, gradient_slots_, sum_slots_;
  std::vector<FsdpUnit> units_;

  std::optional<ProfilerRange> visit_range_;

  /// The unit whose reduction over the fsdp axis is under way. `sum_is_due`: its sum over the replicas must
  /// still be started.
  struct Reduction {
    bool open = false;
    size_t unit = 0;
    bool sum_is_due = false;
  } reduction_;
  /// Units whose sums over the replicas are under way, oldest first.
  std::deque<size_t> summing_;

  std::optional<GradientNorm> norm_;
};

}  // namespace ripstop
