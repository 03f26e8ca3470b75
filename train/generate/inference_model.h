// InferenceModel: a trained model on one rank that computes losses and generates text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/kv_cache.h"
#include "parallel/sharded_transformer.h"
#include "train/generate/generate.h"
#include "train/step/world_totals.h"

namespace ripstop {

/// The sizes of an InferenceModel.
struct InferenceOptions {
  DType compute = DType::kBFloat16;  ///< the type of weights and activations
  int64_t context = 0;               ///< positions of a sequence
  int64_t slots = 1;                 ///< sequences that are generated at once
  int64_t num_beams = 1;             ///< rows of a sequence
  int64_t max_new_tokens = 0;        ///< with beams: the most that one of them adds
  bool all_logits = false;           ///< logits() is called, not best()
  bool draws = false;                ///< tokens are drawn at random from these logits
  /// Tokens of one call with prompts, and of one batch whose loss is computed; at least `context`.
  int64_t prefill_tokens = 0;
  LoraConfig lora = {};  ///< adapters beside the model's weights, which are not merged into them

  /// Sequences of a batch whose loss is computed.
  int64_t sequence_count() const { return std::max<int64_t>(prefill_tokens / context, 1); }

  /// Rows of one step.
  int64_t rows() const { return slots * num_beams; }
  /// Places of a slot of the cache. Beams share the prompt's, and each has places of its own for new tokens.
  int64_t places() const { return context + (num_beams - 1) * max_new_tokens; }

  /// The options for a model that was trained on sequences of `sequence_length`: its context, a prefill of
  /// some thousand tokens, and what generation by `settings` needs. `settings.max_new_tokens` may be 0 if
  /// nothing is generated. Throws Error(kUsage) if they leave no room for a prompt.
  static InferenceOptions of(const ModelConfig& model, int64_t sequence_length, DType compute, int64_t slots,
                             const GenerationSettings& settings);
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

  /// The AppendTokens of generate(): best() of ids below `ids`, and logits(), which needs
  /// InferenceOptions::all_logits. A call with one token an item must name every sequence that goes on. Every
  /// step computes all rows, and prompts are computed in multiples of kRowStep rows. So there are few shapes,
  /// and the tokens of a sequence do not depend on the other sequences under way.
  ///
  /// logits() brings 4 * rows * V bytes to the host: 16 MB a step for 32 summaries by 4 beams of 32,000 ids,
  /// less than a hundredth of the weights that a step of a 1.1B model reads. With the best few of each row
  /// instead, bans could leave too few, and draws need all.
  std::vector<int32_t> best(std::span<const SlotTokens> items, int64_t ids);
  std::span<const LogitRow> logits(std::span<const SlotTokens> items);

  /// The exact loss of `count` batches of sequence_count() sequences each, of all data ranks together; see
  /// evaluate_batches. Collective.
  LossSum evaluate(int64_t count, NextTokens next, FunctionRef<bool()> stop_requested);

  /// Runs every shape that can occur, on kMeta only. The arena's peak is then the capacity that it needs.
  void run_all_shapes();

  static constexpr int64_t kRowStep = 64;

 private:
  void append(std::span<const SlotTokens> items, int64_t ids);
  void run_prompts(std::span<const SlotTokens> items, int64_t ids);
  void run_step(std::span<const SlotTokens> items, int64_t ids);
  void place_row(int64_t row, const SlotTokens& item);
  void prefill(int64_t rows, int64_t document_count, int64_t longest_document, int64_t ids);
  void decode(int64_t ids);
  NextTokenScores scores(int64_t rows, int64_t ids) const;
  std::vector<int32_t> predictions() const;
  const float* on_host(const Buffer& buffer, int64_t floats, std::vector<float>& copy) const;
  float* joined_logits();

  InferenceOptions options_;
  int64_t row_step_;
  int64_t prompt_rows_;  ///< the most rows of one call
  int64_t slices_;       ///< slices of the vocabulary
  int64_t columns_;      ///< ids of a slice, with padding
  int64_t vocabulary_;
  const Stream& stream_;
  ShardedTransformer model_;
  KeyValueCache
      cache_;  ///< one slot more than options_.slots: for rows that only fill up a multiple of kRowStep
  BatchMemory batch_memory_;
  WorldTotals totals_;
  /// The inputs and outputs of the model on the device, and below them their copies on the host.
  Buffer token_, position_, slot_, document_offset_, last_row_;
  Buffer place_, tail_first_, tail_place_;   ///< with beams
  Buffer value_, id_, logits_, statistics_;  ///< members of NextTokenScores: the first two, or the others
  std::vector<int32_t> host_token_, host_position_, host_slot_, host_document_offset_, host_last_row_;
  std::vector<int32_t> host_place_, host_tail_first_, host_tail_place_;
  std::vector<size_t> row_of_item_;  ///< where the scores of the last call are
  int64_t scored_rows_ = 0;          ///< rows of the last call
  std::vector<float> host_logits_, host_statistics_, host_joined_;
  Buffer
      joined_logits_;  ///< all slices side by side, on a CPU; elsewhere host_joined_, which the ledger omits
  Buffer drawing_;     ///< on kMeta: only counts the memory that draw_token allocates
  std::vector<LogitRow> logit_rows_;
  Arena arena_;
};

/// The plan of the rank at `coordinates` of `mesh`: the same model on kMeta, run through all its shapes. Not
/// collective.
InferencePlan plan_inference(const ModelConfig& config, const InferenceOptions& options,
                             const MeshSizes& mesh, const MeshCoordinates& coordinates, DeviceKind device);

}  // namespace ripstop
