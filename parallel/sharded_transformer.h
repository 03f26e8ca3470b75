#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/initialize.h"
#include "model/kv_cache.h"
#include "model/transformer.h"
#include "parallel/device_mesh.h"
#include "parallel/fsdp_unit.h"
#include "parallel/gradient_norm.h"
#include "parallel/pipeline_links.h"
#include "parallel/stage_split.h"

namespace ripstop {

struct ShardingOptions {
  DType compute = DType::kBFloat16;  ///< dtype of activations and gathered weights
  DType reduce = DType::kFloat32;    ///< dtype in which gradients are sent over fsdp and replicate
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
  /// Layers of each stage of the pipeline; empty: as split_stages() cuts a model with targets in every row.
  std::vector<int64_t> stage_layers = {};
  /// Members of PipelineSizes. Two stages on each rank need a mesh made with stages_per_rank = 2.
  int64_t stages_per_rank = 1;
  double pipeline_ahead = 1;
};

/// The sizes of a mesh's pipeline. A mesh without a pipeline has one stage, whatever the options.
PipelineSizes pipeline_sizes(const MeshSizes& mesh, const ShardingOptions& options, int64_t micro_batches);

/// The stages of a model on a mesh, by ShardingOptions::stage_layers. Throws like split_stages() and
/// with_layers().
StageSplit stage_split(const ModelConfig& config, const MeshSizes& mesh, const ShardingOptions& options);

/// The micro-batches of a step of this data rank, or of an evaluation. The functions are borrowed.
struct StepBatches {
  int64_t count = 1;
  int64_t rows = 0;  ///< N of each micro-batch
  /// Returns micro-batch `number`. Called once for each, in ascending order. The last
  /// ShardedTransformer::most_batches() batches must stay valid.
  FunctionRef<Batch(int64_t number)> load;
  /// Called after the backward of each micro-batch but the last, with the number of micro-batches done. True
  /// shortens the step to shortest_step() micro-batches and ends the calls, or has no effect if the step is
  /// not longer than that. All ranks must return the same value.
  FunctionRef<bool(int64_t done)> gives_up;
};

/// Slots in each SlotPool: one for the unit that computes, one for a unit that is gathered or reduced.
inline constexpr int64_t kUnitSlots = 2;

/// A transformer whose layers are cut into stages over the pipeline axis, and whose parameters are sharded
/// over the fsdp axis and sliced over the tensor axis. Owns the layers, the units of this rank's stages and
/// their slots; activations lie in the caller's arena. All members that compute are collective over the mesh.
class ShardedTransformer {
 public:
  /// Allocates everything but activations. Weights are zero at first. Throws like stage_split(), and
  /// Error(kResources) if the tensor axis cannot cut the model or the device has too little memory.
  ShardedTransformer(const ModelConfig& config, DeviceMesh& mesh, const Stream& stream, MemoryLedger& ledger,
                     const ShardingOptions& options);
  ~ShardedTransformer();

  /// Fills the weights with initial_values.
  void initialize(uint64_t seed) { initialize(seed, units_); }
  /// Fills only the weights of `units`, which belong to this model.
  void initialize(uint64_t seed, std::span<FsdpUnit> units, InitialValues values = initial_values);

  /// Runs the micro-batches of a step forward and backward. Adds the loss of this rank's targets to total [1]
  /// float64. With finish_gradients(), the shards' gradients become those of all data ranks' summed loss.
  /// Returns false if batches.gives_up ended the step; the gradients are then incomplete. Read this first.
  bool run(Arena& arena, const StepBatches& batches, const Tensor& total);

  /// Completes the gradients of the step: sums those of replicated parameters over the tensor axis, and those
  /// of a tied table over its two stages. Adds the squared norm of this rank's shards to total [1] float64,
  /// in whose sum over the world each logical element counts once.
  void finish_gradients(Arena& arena, const Tensor& total);

  /// Runs forward only. Adds the loss of this rank's targets to total [1] float64. Does not call gives_up.
  void evaluate(Arena& arena, const StepBatches& batches, const Tensor& total);

  /// Runs forward only. Writes logits [N, V / t] float32 of this rank's slice of the vocabulary for all N
  /// rows. Like prefill() and decode(), not for a pipeline.
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

  /// Gathers the units one by one and copies the weights to `whole`: the same model, tensor axis and compute
  /// dtype, but pipeline and fsdp axes of 1. Every rank gets its whole slice. In stream order. Sends 1 / fsdp
  /// of each unit over the fsdp axis, as all_gather() does, and as much over the pipeline axis, as
  /// broadcast() does. Collective over both axes.
  void copy_weights_to(ShardedTransformer& whole);

  /// Calls ripstop::prepare_attention for the forward of micro-batches of these sizes and, if `backward`, for
  /// their backward. Returns the number of plans made.
  int64_t prepare_attention(int64_t documents, int64_t longest, bool backward) const;

  /// All units of this rank's stages, in the order of whole_table(), and the place of each in that table.
  std::vector<FsdpUnit>& units() { return units_; }
  const std::vector<size_t>& places() const { return places_; }
  /// The model's unit_table(), with the stages of split().
  const std::vector<UnitSpec>& whole_table() const { return whole_table_; }
  const StageSplit& split() const { return split_; }
  /// This rank's stages, by chunk.
  const std::vector<Stage>& stages() const { return stages_; }
  /// The most micro-batches between first forward and last backward on this rank, in a step of any length.
  int64_t most_batches() const;
  /// trained_units() are in the order of trained_table.
  std::span<FsdpUnit> trained_units() { return std::span(units_).subspan(first_trained_); }
  std::span<FsdpUnit> frozen_units() { return std::span(units_).first(first_trained_); }
  const ModelConfig& config() const { return config_; }
  const ShardingOptions& options() const { return options_; }
  DeviceMesh& mesh() { return mesh_; }
  Context context(Arena& arena, const DropoutPlace* dropout = nullptr) const {
    return {stream_, arena, *tensor_axis_, dropout};
  }

 private:
  /// One use of a gathered unit of parameter_table, with its adapters.
  struct Visit {
    size_t unit;
    const char* pass;  ///< for profilers: "forward", ...
  };
  /// A micro-batch from the beginning of its forward in a stage to the end of its backward there.
  struct InFlight {
    const Stage* stage = nullptr;  ///< null: none is in flight here
    int64_t micro_batch = -1;
    Batch batch = {};
    size_t boundary = 0;  ///< number of the `links` buffer of the branch, later of the residual's gradient
    Residual residual = {};
    std::vector<Block::Saved> saved = {};  ///< one for each layer of the rank's longest stage
  };
  /// Memory of a pass over micro-batches, in the arena frame of the pass.
  struct Pass {
    PipelineLinks links;
    std::vector<InFlight> in_flight = {};
    std::vector<Batch> batches = {};  ///< the last most_batches() that were loaded, as a ring
  };
  size_t head_unit() const { return config_.tie_word_embeddings ? 0 : model_.blocks.size() + 1; }
  Pass begin_pass(Context& context, const StepBatches& batches, bool training);
  int64_t shorten(int64_t done, int64_t micro_batches);
  InFlight& in_flight(Pass& pass, const StepBatches& batches, const PipelineAction& action);
  void begin_program(int64_t micro_batches, bool training, size_t visit);
  void list_visits();
  void forward(Arena& arena, InFlight& micro, PipelineLinks& links, bool drops);
  void backward(Arena& arena, InFlight& micro, PipelineLinks& links, bool last, const Tensor& total);
  bool has_embedding() const { return stages_.front().is_first; }
  bool has_head() const { return stages_.back().is_last; }
  bool is_shared(size_t unit) const;
  void sum_shared(Context& context);
  void send_to_stages(FsdpUnit& unit, int64_t holder);
  using BlockBody = FunctionRef<void(size_t layer, Residual& residual, const Block::Saved& saved)>;
  using HeadBody = FunctionRef<void(Residual& residual, const HeadLoss::Saved& saved)>;
  void through_layers(Context& context, const Stage& stage, const Tensor& token, const Tensor& branch,
                      FunctionRef<void(size_t layer)> block);
  void forward_only(Context& context, const Tensor& token, BlockBody block, HeadBody head);
  void sum_replicated(Context& context);
  std::optional<size_t> adapters_of(size_t unit) const;
  // The unit whose gradients a visit of `unit` writes, if any.
  std::optional<size_t> trained_of(size_t unit) const { return is_frozen() ? adapters_of(unit) : unit; }
  template <class Body>
  void each_unit(size_t unit, Body body);
  bool is_frozen() const { return options_.lora.any(); }
  // Whether the layer's input needs a gradient: below the first layer is only the embedding, which may be
  // frozen.
  InputGradient below(size_t layer) const { return InputGradient{layer > 0 || !is_frozen()}; }
  void enter(size_t unit);
  void leave();
  void begin_gradients(Context& context, size_t unit);
  void reduce_gradients(size_t unit, bool last);
  void finish_reduction();
  // Whether sums over replicas begin only after the stages' messages: a stage below on another rank needs the
  // last gradient first, and the sums would hold it up on the network.
  bool sums_after_links() const { return !stages_.back().is_first && mesh_.sizes().replicate > 1; }
  void start_sum();
  void finish_oldest_sum();
  void finish_reductions(bool is_whole);
  void start_norm(size_t unit);
  FsdpUnit& unit_at(size_t place) { return units_.at(numbers_[place]); }
  void poll();

  ModelConfig config_;
  ShardingOptions options_;
  DeviceMesh& mesh_;
  const Stream& stream_;
  StageSplit split_;
  std::vector<UnitSpec> whole_table_;
  std::vector<Stage> stages_;
  std::vector<size_t> places_;   ///< for each unit in units_, its row of whole_table_
  std::vector<size_t> numbers_;  ///< for each row, the unit in units_; units_.size() if another rank has it
  size_t first_trained_;
  std::unique_ptr<TensorAxis> tensor_axis_;
  Transformer model_;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<SlotPool> weight_slots_, frozen_slots_, gradient_slots_, sum_slots_;
  std::vector<FsdpUnit> units_;

  /// The operations of the last pass; the next pass often has the same.
  PipelineSizes program_sizes_;
  std::vector<PipelineOperation> program_;

  /// Visits of the pass under way, and how many of them have ended.
  std::vector<Visit> visits_;
  size_t visit_ = 0;
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
