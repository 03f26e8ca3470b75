// Synthetic tokens of a check. All functions are pure, so that a mesh and a rank alone see equal tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "data/dataset/packed_batch.h"

namespace ripstop {

/// Parameters of a check's tokens. A slot of a step holds a sequence or is empty: in step 2 the last data
/// rank's slots are empty, or, if there is one data rank, its last slot.
struct CheckTokens {
  uint64_t seed = 1;
  int64_t vocabulary = 0;       ///< number of token ids
  int64_t sequence_length = 0;  ///< tokens of a sequence (T)
  int64_t data_ranks = 1;
  int64_t micro_batches = 2;
  int64_t micro_batch_sequences = 1;  ///< sequences of a micro-batch (B)

  /// Number of slots of a step. Slot j belongs to data rank j mod data_ranks. A data rank's slots fill its
  /// micro-batches in order, as BatchLoader deals sequences.
  int64_t slots() const { return data_ranks * micro_batches * micro_batch_sequences; }
};

/// The slots of step `step` (from 1) that hold a sequence.
std::vector<int64_t> filled_slots(const CheckTokens& tokens, int64_t step);

/// The slots of micro-batch `micro` (from 0) of data rank `data_rank`; -1 for an empty slot.
std::vector<int64_t> slots_of(const CheckTokens& tokens, int64_t step, int64_t data_rank, int64_t micro);

/// A micro-batch of the B sequences in `slots`, end to end. Slot -1 gives a single document of tokens 0
/// without targets. Every fourth sequence is a single document, the others hold several. The first tokens of
/// a document, from none to all, have no target, so that data ranks have different numbers of targets. Slot 0
/// has some, because a step without any is skipped.
PackedBatch check_batch(const CheckTokens& tokens, int64_t step, const std::vector<int64_t>& slots);

int64_t target_count(const CheckTokens& tokens, int64_t step);

}  // namespace ripstop
