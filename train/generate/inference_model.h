// InferenceModel: a trained model on one rank, ready to score text and to write it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/kv_cache.h"
#include "parallel/sharded_transformer.h"
#include "train/generate/greedy.h"

namespace ripstop {

/// How much an InferenceModel takes on at once.
struct InferenceOptions {
  DType compute = DType::kBFloat16;  ///< of weights and activations
  int64_t context = 0;               ///< positions of a sequence
  int64_t slots = 1;                 ///< sequences that are generated at once
  int64_t prefill_tokens =
      0;  ///< tokens of one call with prompts, and of a batch to be scored; at least `context`

  /// Sequences of a batch to be scored.
  int64_t sequence_count() const { return std::max<int64_t>(prefill_tokens / context, 1); }

  /// For a model that was trained on sequences of `sequence_length`: its context, and a prefill of some
  /// thousand tokens. Throws Error(kUsage) where `max_new_tokens` leave no room for a prompt.
  static InferenceOptions of(const ModelConfig& model, int64_t sequence_length, DType compute, int64_t slots,
                             int64_t max_new_tokens);
};

/// What it allocates on a rank.
struct InferencePlan {
  MemoryUse memory;  ///< everything at its peak
  MemoryUse arena;   ///< the part of it that the arena needs
};

/// A model without gradients on a mesh whose fsdp axis is 1: each replica holds the weights, cut over its
/// tensor axis, so that no weight travels while it works. Ranks of one tensor group make the same calls.
class InferenceModel {
 public:
  /// All weights are zero until FsdpUnit::set_shard or ShardedTransformer::copy_weights_to has set them.
  /// `arena` is plan_inference's. Throws Error(kResources).
  InferenceModel(const ModelConfig& config, const InferenceOptions& options, DeviceMesh& mesh,
                 const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena = {});

  ShardedTransformer& model() { return model_; }
  Arena& arena() { return arena_; }
  const InferenceOptions& options() const { return options_; }

  /// For generate_greedy: see AppendTokens. A call with one token an item must name every sequence that goes
  /// on. Every step computes all slots, and prompts are computed in multiples of kRowStep rows, so that few
  /// shapes occur and a sequence's tokens do not depend on which others are under way.
  std::vector<int32_t> append(std::span<const SlotTokens> items);

  /// Adds the loss of a batch of sequence_count() sequences to the sum that take_loss() hands out.
  void score(const HostTokens& tokens);
  /// The summed loss of the batches since the last call.
  double take_loss();

  /// On kMeta alone: runs every shape that can occur; what the arena has then seen is what it needs.
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
  int64_t prompt_rows_;  ///< of one call, at most
  int64_t slices_;       ///< of the vocabulary
  const Stream& stream_;
  ShardedTransformer model_;
  KeyValueCache cache_;  ///< one slot more than options_.slots: rows that only fill up go there
  BatchMemory batch_memory_;
  /// What the device reads and writes beside the model, and the host's side of it.
  Buffer token_, position_, slot_, document_offset_, last_row_, value_, id_, loss_;
  std::vector<int32_t> host_token_, host_position_, host_slot_, host_document_offset_, host_last_row_;
  Arena arena_;
};

/// The same model at `coordinates` of `mesh` on kMeta, run through all its shapes.
InferencePlan plan_inference(const ModelConfig& config, const InferenceOptions& options,
                             const MeshSizes& mesh, const MeshCoordinates& coordinates, DeviceKind device);

}  // namespace ripstop
