// Tests of the schedule and the workspace of CUDA attention, which need no GPU.
#include "model/kernels/cuda_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "model/ops/kernel_table.h"

namespace ripstop::cuda {
namespace {

constexpr Heads kMany{32, 32, 128}, kGrouped{32, 4, 64};

TEST(CudaAttention, EqualDocumentsOfWholeTilesAreDense) {
  const AttentionSchedule dense = attention_schedule(4 * 1024, 4, 1024, false);
  EXPECT_TRUE(dense.dense);
  EXPECT_EQ(dense.length, 1024);
  EXPECT_EQ(dense.groups, (std::vector<DocumentGroup>{{0, 4}}));
  EXPECT_TRUE(attention_schedule(384, 1, 384, false).dense);
  // 192 rows are no whole number of tiles; in the second case one document is shorter.
  EXPECT_FALSE(attention_schedule(4 * 192, 4, 192, false).dense);
  EXPECT_FALSE(attention_schedule(4 * 1024 - 1, 4, 1024, false).dense);
}

TEST(CudaAttention, GroupsCoverEveryDocumentOnceInPowersOfTwo) {
  std::mt19937 generator(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const int64_t longest = 1 + static_cast<int64_t>(generator() % 3000);
    const int64_t count = 1 + static_cast<int64_t>(generator() % 1500);
    // The longest, and others between 1 and that.
    const int64_t rows =
        longest + (count - 1) * (1 + static_cast<int64_t>(generator() % static_cast<unsigned>(longest)));
    for (const bool padded : {false, true}) {
      const AttentionSchedule s = attention_schedule(rows, count, longest, padded);
      if (s.dense) continue;
      ASSERT_GE(s.length, longest);
      int64_t next = 0;
      for (const DocumentGroup& group : s.groups) {
        ASSERT_EQ(group.first, next);
        ASSERT_GT(group.count, 0);
        ASSERT_EQ(group.count & (group.count - 1), 0) << group.count;
        ASSERT_LE(group.count, kMostDocuments);
        if (padded) {
          ASSERT_LE(group.count * s.length, attention_rows(rows, longest));
        }
        next += group.count;
      }
      ASSERT_EQ(next, count);
    }
  }
}

TEST(CudaAttention, FewLengthsOccur) {
  EXPECT_EQ(padded_length(1), 128);
  EXPECT_EQ(padded_length(128), 128);
  EXPECT_EQ(padded_length(129), 256);
  EXPECT_EQ(padded_length(2048), 2048);
  EXPECT_EQ(padded_length(2049), 4096);
}

// Parts do not overlap, and each has the size that its comment says.
TEST(CudaAttention, PartsDoNotOverlap) {
  for (const Heads& heads : {kMany, kGrouped, Heads{6, 6, 48}})
    for (const int64_t rows : {1, 192, 1000, 16384})
      for (const int64_t longest : {int64_t{1}, rows})
        for (const bool deterministic : {false, true}) {
          const AttentionWorkspace s = attention_backward_workspace(rows, longest, heads, deterministic);
          const int64_t query = heads.query * heads.size, key_value = heads.key_value * heads.size;
          const int64_t padded = std::max(rows, padded_length(longest));
          const int64_t grouped = (heads.query == heads.key_value ? 2 : 4) * padded * query;
          const std::vector<std::pair<int64_t, int64_t>> parts{{s.offset_row, 8 * (rows + 1)},
                                                               {s.offset_query, 8 * (rows + 1)},
                                                               {s.offset_key_value, 8 * (rows + 1)},
                                                               {s.offset_heads, 8 * (rows + 1)},
                                                               {s.length, 4 * rows},
                                                               {s.log_sum_exp, 4 * padded * heads.query},
                                                               {s.dquery, 2 * rows * query},
                                                               {s.dkey, 2 * rows * key_value},
                                                               {s.dvalue, 2 * rows * key_value},
                                                               {s.dquery_sum, 4 * padded * query},
                                                               {s.row_sum, 4 * padded * heads.query},
                                                               {s.dkey_grouped, grouped},
                                                               {s.dvalue_grouped, grouped},
                                                               {s.plan, 230 * 1024}};
          int64_t end = 0;
          for (const auto& [offset, bytes] : parts) {
            ASSERT_GE(offset, end);
            ASSERT_EQ(offset % 256, 0);
            end = offset + bytes;
          }
          ASSERT_GE(s.bytes, end);
        }
}

// The workspace for the longest possible document is enough for every batch.
TEST(CudaAttention, GrowsWithTheLongestDocument) {
  const WorkspaceTable& table = cuda_workspaces();
  for (const bool deterministic : {false, true})
    for (int64_t longest = 1; longest < 4096; longest += 37)
      ASSERT_LE(table.attention_backward(4096, longest, kGrouped, DType::kBFloat16, deterministic),
                table.attention_backward(4096, longest + 37, kGrouped, DType::kBFloat16, deterministic));
}

// A 7B model on 4,096 tokens needs scratch for dQ in float32 and the gradients, but not for 1 GiB of scores.
TEST(CudaAttention, BackwardOfSevenBillionIsLinear) {
  const int64_t bytes = cuda_workspaces().attention_backward(4096, 4096, kMany, DType::kBFloat16, false);
  EXPECT_GT(bytes, 4 * 4096 * 4096);
  EXPECT_LT(bytes, int64_t{256} << 20);
  EXPECT_GT(cuda_workspaces().attention_backward(4096, 4096, kMany, DType::kBFloat16, true),
            int64_t{2} * 32 * 4096 * 4096);
}

}  // namespace
}  // namespace ripstop::cuda
