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

struct InferenceOptions {
  DType compute = DType::kBFloat16;  ///< the type of weights and activations
  int64_t context = 0;               ///< maximum tokens of a sequence
  int64_t slots = 1;                 ///< sequences generated at once
  int64_t num_beams = 1;             ///< rows of a step for each sequence
  int64_t max_new_tokens = 0;        ///< maximum new tokens of a beam; used only with several beams
  bool all_logits = false;           ///< callers use logits(), not best()
  bool draws = false;                ///< callers draw tokens at random from the logits
  /// Maximum tokens of a call with prompts, and of a batch in evaluate(); at least `context`.
  int64_t prefill_tokens = 0;
  LoraConfig lora = {};  ///< adapters that are not merged into the weights

  /// Sequences of a batch in evaluate().
  int64_t sequence_count() const { return std::max<int64_t>(prefill_tokens / context, 1); }

  /// Rows of one step.
  int64_t rows() const { return slots * num_beams; }
  /// Places of a cache slot. Beams share the places of the prompt; each beam has its own places for new
  /// tokens.
  int64_t places() const { return context + (num_beams - 1) * max_new_tokens; }

  /// The options for a model that was trained on sequences of `sequence_length` tokens.
  /// `settings.max_new_tokens` is 0 if the model does not generate. `pieces`: number of the tokenizer's
  /// pieces; an end token >= `pieces` sets all_logits, to ban the other ids >= `pieces`. Throws Error(kUsage)
  /// if the new tokens leave no room for a prompt, and like require_end_tokens() and check_window().
  static InferenceOptions of(const ModelConfig& model, int64_t sequence_length, DType compute, int64_t slots,
                             const GenerationSettings& settings, int64_t pieces = INT64_MAX);
};

/// Throws Error(kUsage) if settings.eos_token_id has an id that the model does not have.
void require_end_tokens(const GenerationSettings& settings, const ModelConfig& model);

/// The memory of an InferenceModel on one rank.
struct InferencePlan {
  MemoryUse memory;  ///< all memory at the peak, including the arena
  MemoryUse arena;   ///< the arena's part of `memory`
};

/// A trained model on one rank that computes losses and generates text. The fsdp axis of the mesh is 1: each
/// replica has all weights, sliced over its tensor axis, so no weights are gathered. Ranks of a tensor group
/// make the same calls.
class InferenceModel {
 public:
  /// All weights are zero until FsdpUnit::set_shard or ShardedTransformer::copy_weights_to sets them. `arena`
  /// is InferencePlan::arena. Throws Error(kResources).
  InferenceModel(const ModelConfig& config, const InferenceOptions& options, DeviceMesh& mesh,
                 const Stream& stream, MemoryLedger& ledger, const MemoryUse& arena = {});

  ShardedTransformer& model() { return model_; }
  Arena& arena() { return arena_; }
  const InferenceOptions& options() const { return options_; }

  /// The calls of AppendTokens. With InferenceOptions::all_logits only logits() may be called, else only
  /// best(), which chooses among the ids below `ids`. A step, a call with one token for each item, computes
  /// all rows: it must have an item for every sequence that goes on. Prompts have multiples of kRowStep rows.
  /// So few shapes occur, and other sequences change the results of a sequence only by rounding, if at all.
  ///
  /// logits() copies 4 * rows * V bytes from a GPU to the host: 16 MB a step for 32 summaries with 4 beams
  /// and 32,000 ids, less than a hundredth of the weights that a step of a 1.1B model reads. The best few
  /// logits of a row would not do: bans could leave too few, and drawing needs all.
  std::vector<int32_t> best(std::span<const SlotTokens> items, int64_t ids);
  std::span<const LogitRow> logits(std::span<const SlotTokens> items);

  /// The loss of `count` batches of sequence_count() sequences each. Collective.
  LossSum evaluate(int64_t count, NextTokens next, FunctionRef<bool()> stop_requested);

  /// Runs every possible shape, on kMeta only. The arena's peak is then the capacity that the arena needs.
  void run_all_shapes();

  /// Calls with prompts compute a multiple of this number of rows, or of the context if that is smaller.
  static constexpr int64_t kRowStep = 64;

  /// int32 numbers for a call, such as tokens and positions, on the host and on the device.
  struct Input {
    Buffer device;
    std::vector<int32_t> host = {};
  };

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
  int64_t prompt_rows_;  ///< maximum rows of a call with prompts
  int64_t slices_;       ///< slices of the vocabulary
  int64_t columns_;      ///< ids of a slice, with padding
  int64_t vocabulary_;
  const Stream& stream_;
  ShardedTransformer model_;
  /// The cache has an extra slot after options_.slots, for rows that only fill up a multiple of kRowStep.
  KeyValueCache cache_;
  BatchMemory batch_memory_;
  WorldTotals totals_;
  Input token_, position_, slot_, document_offset_, last_row_;
  Input place_, tail_first_, tail_place_;  ///< used with several beams only
  /// value_ and id_ are for best(), logits_ and statistics_ for logits().
  Buffer value_, id_, logits_, statistics_;
  std::vector<size_t> row_of_item_;  ///< the output row of each item of the last call
  int64_t scored_rows_ = 0;          ///< output rows of the last call
  std::vector<float> host_logits_, host_statistics_, host_joined_;
  /// The logits of all slices side by side on a CPU; a GPU uses host_joined_, outside the ledger.
  Buffer joined_logits_;
  Buffer drawing_;  ///< takes no memory: counts that which draw_token() allocates
  std::vector<LogitRow> logit_rows_;
  Arena arena_;
};

/// Plans the memory of the rank at `coordinates`. Not collective.
InferencePlan plan_inference(const ModelConfig& config, const InferenceOptions& options,
                             const MeshSizes& mesh, const MeshCoordinates& coordinates, DeviceKind device);

}  // namespace ripstop
