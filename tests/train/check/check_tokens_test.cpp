// The tokens of a check: valid batches, the same sequences on every mesh, and all kinds of sequences.
#include "train/check/check_tokens.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ripstop {
namespace {

CheckTokens tokens(int64_t data_ranks, int64_t sequences = 2) {
  return {.seed = 5,
          .vocabulary = 37,
          .sequence_length = 48,
          .data_ranks = data_ranks,
          .micro_batches = 2,
          .micro_batch_sequences = sequences};
}

TEST(CheckTokens, BatchesAreWhatTheModelTakes) {
  for (int64_t step = 1; step <= 2; ++step)
    for (int64_t rank = 0; rank < 3; ++rank)
      for (int64_t micro = 0; micro < 2; ++micro) {
        const CheckTokens t = tokens(3);
        const PackedBatch batch = check_batch(t, step, slots_of(t, step, rank, micro));
        ASSERT_EQ(batch.rows(), 96);
        ASSERT_EQ(std::ssize(batch.token), 96);
        ASSERT_EQ(std::ssize(batch.target), 96);
        EXPECT_EQ(batch.document_offset.front(), 0);
        EXPECT_EQ(batch.document_offset.back(), 96);
        int64_t targets = 0;
        std::set<int64_t> begins;
        for (size_t d = 0; d + 1 < batch.document_offset.size(); ++d) {
          const int64_t begin = batch.document_offset[d], end = batch.document_offset[d + 1];
          ASSERT_LT(begin, end);
          begins.insert(begin);
          for (int64_t row = begin; row < end; ++row) {
            const auto i = static_cast<size_t>(row);
            EXPECT_EQ(batch.position[i], row - begin);
            EXPECT_GE(batch.token[i], 0);
            EXPECT_LT(batch.token[i], 37);
            EXPECT_LT(batch.target[i], 37);
            targets += batch.target[i] >= 0 ? 1 : 0;
          }
        }
        EXPECT_EQ(batch.target_count, targets);
        EXPECT_TRUE(begins.contains(48)) << "no document crosses the end of a sequence";
      }
}

TEST(CheckTokens, SequencesDependOnTheirSlotAlone) {
  const CheckTokens two = tokens(2, 2), one = tokens(4, 1);
  const PackedBatch together = check_batch(two, 1, {3, 6}), alone = check_batch(one, 1, {6});
  EXPECT_TRUE(std::equal(alone.token.begin(), alone.token.end(), together.token.begin() + 48));
  EXPECT_TRUE(std::equal(alone.target.begin(), alone.target.end(), together.target.begin() + 48));
  EXPECT_NE(check_batch(one, 2, {6}).token, alone.token) << "each step has tokens of its own";
  CheckTokens other = one;
  other.seed = 6;
  EXPECT_NE(check_batch(other, 1, {6}).token, alone.token);
}

TEST(CheckTokens, EverySequenceIsDealtOnce) {
  for (const int64_t data_ranks : {1, 2, 3})
    for (int64_t step = 1; step <= 2; ++step) {
      const CheckTokens t = tokens(data_ranks);
      std::multiset<int64_t> dealt;
      for (int64_t rank = 0; rank < data_ranks; ++rank)
        for (int64_t micro = 0; micro < 2; ++micro)
          for (const int64_t slot : slots_of(t, step, rank, micro))
            if (slot >= 0) dealt.insert(slot);
      const std::vector<int64_t> filled = filled_slots(t, step);
      EXPECT_EQ(dealt, std::multiset<int64_t>(filled.begin(), filled.end()));
      EXPECT_EQ(std::ssize(filled), step == 1 ? t.slots() : data_ranks == 1 ? t.slots() - 1 : t.slots() - 4);
    }
}

// The tokens include: several documents, one document as long as the sequence, uneven targets, empty
// sequences, and a data rank without any sequence.
TEST(CheckTokens, TheCasesThatMatterOccur) {
  CheckTokens one = tokens(1, 1);
  for (one.seed = 0; one.seed < 200; ++one.seed) EXPECT_GT(target_count(one, 2), 0) << one.seed;
  const CheckTokens t = tokens(3);
  std::map<int64_t, int64_t> targets;
  bool several = false, whole = false, without_target = false;
  for (const int64_t slot : filled_slots(t, 1)) {
    CheckTokens one = t;
    one.micro_batch_sequences = 1;
    const PackedBatch batch = check_batch(one, 1, {slot});
    targets[slot % 3] += batch.target_count;
    several = several || batch.document_count() > 2;
    whole = whole || batch.document_count() == 1;
    for (size_t d = 0; d + 1 < batch.document_offset.size(); ++d) {
      const auto begin = batch.target.begin() + batch.document_offset[d],
                 end = batch.target.begin() + batch.document_offset[d + 1];
      without_target = without_target || std::all_of(begin, end, [](int32_t id) { return id < 0; });
    }
  }
  EXPECT_TRUE(several);
  EXPECT_TRUE(whole);
  EXPECT_TRUE(without_target);
  EXPECT_NE(targets[0], targets[1]);
  EXPECT_NE(targets[1], targets[2]);
  EXPECT_EQ(target_count(t, 1), targets[0] + targets[1] + targets[2]);
  for (int64_t micro = 0; micro < 2; ++micro)
    EXPECT_EQ(check_batch(t, 2, slots_of(t, 2, 2, micro)).target_count, 0);
  EXPECT_GT(target_count(t, 2), 0);
}

}  // namespace
}  // namespace ripstop
