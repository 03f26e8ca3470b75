// ShardedTransformer: the model on a mesh, and the loop over its layers.
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

/// Options for the layout of a model on the mesh, and for its passes.
struct ShardingOptions {
  DType compute = DType::kBFloat16;  ///< dtype of activations and gathered weights
  DType reduce = DType::kFloat32;    ///< dtype in which gradients are sent over the fsdp axis
  int64_t sequence_count = 1;        ///< the largest number of sequences in a micro-batch
  int64_t sequence_length = 0;       ///< the largest number of tokens in a sequence
  bool reshard_after_forward = true;
  Recompute recompute = Recompute::kNone;
  /// `overlap` of make_sequence_axis().
  bool overlap_tensor = false;
  /// Rows whose logits the head computes at a time.
  int64_t head_chunk_rows = HeadLoss::kChunkRows;
  bool training = true;  ///< false: no gradients, and the tensor axis does not cut the rows
  LoraConfig lora = {};  ///< if enabled, adapters are trained, and the model's own weights are frozen
};

/// Slots in each pool that units share: for the unit that computes, and for the unit on its way.
inline constexpr int64_t kUnitSlots = 2;

/// A transformer whose parameters are sharded over the fsdp axis and sliced over the tensor axis. On one rank
/// it is a mesh of one. Owns the layers, the units and their slots; activations lie in the caller's arena.
/// All members that compute are collective over the mesh.
class ShardedTransformer {
 public:
  /// Allocates everything but activations. All weights are zero until `initialize` or a checkpoint fills
  /// them. Throws Error(kResources) if the mesh cannot cut the model or the device has too little memory.
  ShardedTransformer(const ModelConfig& config, DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger,
                     const ShardingOptions& options);
  ~ShardedTransformer();

  /// Fills the weights with initial_values.
  void initialize(uint64_t seed) { initialize(seed, units_); }
  /// Fills only the weights of `units`, which are some units of this model.
  void initialize(uint64_t seed, std::span<FsdpUnit> units);

  /// Begins a step: forgets the gradients of the step before.
  void begin_step();

  /// Runs one micro-batch forward and backward. Adds the loss of this rank's targets to total [1] float64,
  /// and the gradient of this loss to the shards. If `last`, this is the last micro-batch of the step, and
  /// the shards are also summed over the replicas. Read this function first.
  void forward_backward(Arena& arena, const Batch& batch, bool last, const Tensor& total);

  /// Completes the gradients of the step. Sums the gradients of replicated parameters over the tensor axis.
  /// Adds the squared norm of this rank's shards to total [1] float64; most of it was computed beside the
  /// last backward. If `total` is then summed over the world, each logical element counts once.
  void finish_gradients(Arena& arena, const Tensor& total);

  /// Runs forward alone and adds the loss of this rank's targets to total [1] float64.
  void evaluate(Arena& arena, const Batch& batch, const Tensor& total);

  /// Runs forward alone and writes logits [N, V / t] float32 of this rank's slice of the vocabulary, after
  /// each of all N rows.
  void logits(Arena& arena, const Batch& batch, const Tensor& logits);

  /// Runs prompts through the model, stores their keys and values at `slot` [N] (int32) and the batch's
  /// positions, and writes the scores of the tokens after rows row [M], as HeadLoss::predict. Needs
  /// training = false.
  void prefill(Arena& arena, const Batch& batch, KeyValueCache& cache, const Tensor& slot, const Tensor& row,
               const NextTokenScores& scores);

  /// Runs one new token [S] of each of S sequences, whose places in the cache are `rows` (rows.cache is not
  /// read), and writes the scores of the next token, as HeadLoss::predict. Needs training = false.
  void decode(Arena& arena, const Tensor& token, KeyValueCache& cache, const CacheRows& rows,
              const NextTokenScores& scores);

  /// Renews the bfloat16 copies from the master weights. Call it after master weights were written from
  /// outside and before the next forward.
  void weights_changed(Arena& arena);

  /// Gathers unit after unit and copies the weights to `whole`: the same model with the same tensor axis and
  /// compute dtype and an fsdp axis of 1. Every rank gets its whole slice. In the order of both models'
  /// streams. Collective over the fsdp axis.
  void copy_weights_to(ShardedTransformer& whole);

  /// Calls ripstop::prepare_attention for a micro-batch of such documents, forward and with `backward` also
  /// backward. Returns how many plans were made.
  int64_t prepare_attention(int64_t documents, int64_t longest, bool backward) const;

  /// All units of the model, in the order of unit_table.
  std::vector<FsdpUnit>& units() { return units_; }
  const std::vector<UnitSpec>& table() const { return table_; }
  /// The trained units in the order of trained_table, and the other units.
  std::span<FsdpUnit> trained_units() { return std::span(units_).subspan(first_trained_); }
  std::span<FsdpUnit> frozen_units() { return std::span(units_).first(first_trained_); }
  /// The units of the model's own weights, in the order of parameter_table.
  std::span<FsdpUnit> model_units() { return is_frozen() ? frozen_units() : trained_units(); }
  const ModelConfig& config() const { return config_; }
  const ShardingOptions& options() const { return options_; }
  DeviceMesh& mesh() { return mesh_; }
  /// `dropout`: see Context.
  Context context(Arena& arena, const DropoutPlace* dropout = nullptr) const {
    return {stream_, arena, *tensor_axis_, dropout};
  }

 private:
  /// The units of parameter_table in the order of a pass over the layers. A visit includes the unit's
  /// adapters. The first `with_weights` visits need weights. The last visit of a training pass, the
  /// embedding's backward, needs none: it only writes the gradient, if the embedding is trained.
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
  // Whether a layer below `layer` is trained, so that the gradient of the layer's input is needed. Below the
  // first layer there is only the embedding.
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
  std::unique_ptr<GroupMemory> memory_;  ///< memory of shards and slots
  std::unique_ptr<SlotPool> weight_slots_, frozen_slots_, gradient_slots_, sum_slots_;
  std::vector<FsdpUnit> units_;

  /// The visit under way, for profilers.
  std::optional<ProfilerRange> visit_range_;

  /// The unit whose reduction over the fsdp axis is under way, and whether its sum over the replicas must
  /// still be started.
  struct Reduction {
    bool open = false;
    size_t unit = 0;
    bool sum_is_due = false;
  } reduction_;
  /// The units whose sums over the replicas are under way, oldest first.
  std::deque<size_t> summing_;

  std::optional<GradientNorm> norm_;  ///< has a value only with training
};

}  // namespace ripstop
