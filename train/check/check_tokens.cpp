#include "train/check/check_tokens.h"

#include <algorithm>

#include "model/core/error.h"
#include "model/core/philox.h"

namespace ripstop {
namespace {

// A word of the Philox counter, which makes random numbers for different purposes independent.
enum Purpose : uint32_t { kToken = 1, kDocument = 2 };

// The random words at row `place` of the sequence in `slot`.
PhiloxBlock draw(const CheckTokens& tokens, int64_t step, int64_t slot, int64_t place, Purpose purpose) {
  return philox({static_cast<uint32_t>(place), static_cast<uint32_t>(slot), static_cast<uint32_t>(step),
                 static_cast<uint32_t>(purpose)},
                tokens.seed);
}

// Appends a document of `length` rows; the first `without_target` rows have no target. `begin`: the
// document's first row in the sequence. In slot -1 all tokens are 0.
void append_document(const CheckTokens& tokens, int64_t step, int64_t slot, int64_t length,
                     int64_t without_target, int64_t begin, PackedBatch& batch) {
  const auto id = [&](int64_t place) -> int32_t {
    if (slot < 0) return 0;
    return static_cast<int32_t>(draw(tokens, step, slot, place, kToken)[0] %
                                static_cast<uint32_t>(tokens.vocabulary));
  };
  for (int64_t p = 0; p < length; ++p) {
    const bool counts = p >= without_target;
    batch.token.push_back(id(begin + p));
    batch.position.push_back(static_cast<int32_t>(p));
    batch.target.push_back(counts ? id(begin + p + 1) : -1);
    batch.target_count += counts ? 1 : 0;
  }
  batch.document_offset.push_back(static_cast<int32_t>(batch.token.size()));
}

void append_sequence(const CheckTokens& tokens, int64_t step, int64_t slot, PackedBatch& batch) {
  const int64_t length = tokens.sequence_length;
  // Every fourth sequence is a single document, which spans the rows of all tensor ranks.
  const int64_t longest = slot % 4 == 0 ? length : std::max<int64_t>(length / 3, 1);
  for (int64_t at = 0; at < length;) {
    const PhiloxBlock words = draw(tokens, step, slot, at, kDocument);
    const int64_t drawn = longest == length ? length : 1 + words[0] % longest;
    const int64_t rows = std::min(drawn, length - at);
    append_document(tokens, step, slot, rows, words[1] % (slot == 0 ? rows : rows + 1), at, batch);
    at += rows;
  }
}

bool is_empty_slot(const CheckTokens& tokens, int64_t step, int64_t slot) {
  if (step != 2) return false;
  return tokens.data_ranks > 1 ? slot % tokens.data_ranks == tokens.data_ranks - 1
                               : slot == tokens.slots() - 1;
}

}  // namespace

std::vector<int64_t> filled_slots(const CheckTokens& tokens, int64_t step) {
  std::vector<int64_t> slots;
  for (int64_t slot = 0; slot < tokens.slots(); ++slot)
    if (!is_empty_slot(tokens, step, slot)) slots.push_back(slot);
  return slots;
}

PackedBatch check_batch(const CheckTokens& tokens, int64_t step, const std::vector<int64_t>& slots) {
  RIPSTOP_CHECK(std::ssize(slots) == tokens.micro_batch_sequences, "{} slots for {} sequences", slots.size(),
                tokens.micro_batch_sequences);
  PackedBatch batch{.sequence_count = tokens.micro_batch_sequences,
                    .sequence_length = tokens.sequence_length,
                    .token = {},
                    .position = {},
                    .target = {},
                    .document_offset = {0}};
  for (const int64_t slot : slots)
    if (slot < 0)
      append_document(tokens, step, slot, tokens.sequence_length, tokens.sequence_length, 0, batch);
    else
      append_sequence(tokens, step, slot, batch);
  return batch;
}

std::vector<int64_t> slots_of(const CheckTokens& tokens, int64_t step, int64_t data_rank, int64_t micro) {
  std::vector<int64_t> slots;
  for (int64_t s = 0; s < tokens.micro_batch_sequences; ++s) {
    const int64_t slot = (micro * tokens.micro_batch_sequences + s) * tokens.data_ranks + data_rank;
    slots.push_back(is_empty_slot(tokens, step, slot) ? -1 : slot);
  }
  return slots;
}

int64_t target_count(const CheckTokens& tokens, int64_t step) {
  CheckTokens one = tokens;
  one.micro_batch_sequences = 1;
  int64_t count = 0;
  for (const int64_t slot : filled_slots(tokens, step)) count += check_batch(one, step, {slot}).target_count;
  return count;
}

}  // namespace ripstop
