// The tokens of a check: synthetic, so that no data set is needed, and a pure function of the seed, so that
// every mesh sees the same ones.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset/packed_batch.h"

namespace ripstop {

/// The numbers that decide the tokens of a check.
struct CheckTokens {
  uint64_t seed = 1;
  int64_t vocabulary = 0;       ///< ids are below it
  int64_t sequence_length = 0;  ///< T
  int64_t data_ranks = 1;
  int64_t micro_batches = 2;
  int64_t micro_batch_sequences = 1;  ///< B

  /// The slots of a step. Slot j belongs to data rank j mod data_ranks, whose slots fill its micro-batches in
  /// order, as BatchLoader deals them.
  int64_t slots() const { return data_ranks * micro_batches * micro_batch_sequences; }
};

/// Whether slot `slot` of step `step` (from 1) is empty. In step 2 the last data rank gets no sequence; if
/// there is one data rank, it lacks the last one.
bool is_empty_slot(const CheckTokens& tokens, int64_t step, int64_t slot);

/// The slots of step `step` that hold a sequence.
std::vector<int64_t> filled_slots(const CheckTokens& tokens, int64_t step);

/// The slots of micro-batch `micro` (from 0) of data rank `data_rank`; -1 for one that is empty.
std::vector<int64_t> slots_of(const CheckTokens& tokens, int64_t step, int64_t data_rank, int64_t micro);

/// A micro-batch of the sequences of `slots` (B of them), end to end. Slot -1 gives token 0 without a
/// target in one document, as a data rank without a sequence computes it. Every fourth sequence is one
/// document; others hold several. The first tokens of a document, sometimes all, have no target: so data
/// ranks differ in their targets.
PackedBatch check_batch(const CheckTokens& tokens, int64_t step, const std::vector<int64_t>& slots);

/// The targets of all slots of a step.
int64_t target_count(const CheckTokens& tokens, int64_t step);

}  // namespace ripstop
