// InferenceModel: a trained model on one rank that computes losses and generates text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/kv_cache.h"
#include "parallel/sharded_transformer.h"
#include "train/generate/greedy.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// The sizes of an InferenceModel.
struct InferenceOptions {
  DType compute = DType::kBFloat16;  ///< of weights and activations
  int64_t context = 0;               ///< positions of a sequence
  int64_t slots = 1;                 ///< sequences that are generated at once
  /// Tokens of one call with prompts, and of one batch whose loss is computed; at least `context`.
  int64_t prefill_tokens = 0;

  /// Sequences of a batch whose loss is computed.
  int64_t sequence_count() const { return std::max<int64_t>(prefill_tokens / context, 1); }

  /// The options for a model that was trained on sequences of `sequence_length`: its context, and a prefill
  /// of some thousand tokens. Throws Error(kUsage) if `max_new_tokens` leave no room for a prompt.
  static InferenceOptions of(const ModelConfig& model, int64_t sequence_length, DType compute, int64_t slots,
                             int64_t max_new_tokens);
};

/// The memory of an InferenceModel on one rank.
struct InferencePlan {
  MemoryUse memory;  ///< all of it, at the peak
  MemoryUse arena;   ///< the arena's part of `memory`
};

/// A model without gradients, on a mesh whose fsdp axis is 1: each replica holds all weights, sliced over its
/// tensor axis, so no weights are gathered during the work. Ranks of one tensor group make the same calls.
class InferenceModel {
 public:
  /// All weights are zero until FsdpUnit::set_shard or ShardedTransformer::copy_weights_to sets them. `arena`
  /// is InferencePlan::arena. Throws Error(kResources).
  InferenceModel(const ModelConfig& config, const InferenceOptions& options, DeviceMesh& mesh,
                 const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena = {});

  ShardedTransformer& model() { return model_; }
  Arena& arena() { return arena_; }
  const InferenceOptions& options() const { return options_; }

  /// The AppendTokens of generate_greedy. A call with one token an item must name every sequence that goes
  /// on. Every step computes all slots, and prompts are computed in multiples of kRowStep rows. So there are
  /// few shapes, and the tokens of a sequence do not depend on the other sequences under way.
  std::vector<int32_t> append(std::span<const SlotTokens> items);

  /// The exact loss of `count` batches of sequence_count() sequences each, of all data ranks together; see
  /// evaluate_batches. Collective.
  LossSum evaluate(int64_t count, NextTokens next);

  /// Runs every shape that can occur, on kMeta only. The arena's peak is then the capacity that it needs.
  void run_all_shapes();

  static constexpr int64_t kRowStep = 64;

 private:
  std::vector<int32_t> run_prompts(std::span<const SlotTokens> items);
  std::vector<int32_t> run_step(std::span<const SlotTokens> items);
  void prefill(int64_t rows, int64_t document_count, int64_t longest_document);
  void decode();
  std::vector<int32_t> predictions(int64_t count);

  InferenceOptions options_;
  int64_t row_step_;
  int64_t prompt_rows_;  ///< the most rows of one call
  int64_t slices_;       ///< slices of the vocabulary
  const Stream& stream_;
  ShardedTransformer model_;
  KeyValueCache
      cache_;  ///< one slot more than options_.slots: for rows that only fill up a multiple of kRowStep
  BatchMemory batch_memory_;
  WorldTotals totals_;
  /// The inputs and outputs of the model on the device, and below them their copies on the host.
  Buffer token_, position_, slot_, document_offset_, last_row_, value_, id_;
  std::vector<int32_t> host_token_, host_position_, host_slot_, host_document_offset_, host_last_row_;
  Arena arena_;
};

/// The plan of the rank at `coordinates` of `mesh`: the same model on kMeta, run through all its shapes. Not
/// collective.
InferencePlan plan_inference(const ModelConfig& config, const InferenceOptions& options,
                             const MeshSizes& mesh, const MeshCoordinates& coordinates, DeviceKind device);

}  // namespace ripstop
