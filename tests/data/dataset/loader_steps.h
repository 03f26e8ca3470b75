// Steps as the loaders of all data ranks deal them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "data/dataset/batch_loader.h"
#include "tests/data/small_dataset.h"

namespace ripstop {

/// The documents of a batch without padding: their tokens, and the target of the last row.
inline std::vector<std::vector<int32_t>> documents_of(const PackedBatch& batch) {
  std::vector<std::vector<int32_t>> documents;
  EXPECT_EQ(static_cast<int64_t>(batch.token.size()), batch.rows());
  EXPECT_EQ(static_cast<int64_t>(batch.target.size()), batch.rows());
  EXPECT_EQ(batch.document_offset.front(), 0);
  EXPECT_EQ(batch.document_offset.back(), batch.rows());
  for (int64_t d = 0; d < batch.document_count(); ++d) {
    const auto begin = static_cast<size_t>(batch.document_offset[static_cast<size_t>(d)]);
    const auto end = static_cast<size_t>(batch.document_offset[static_cast<size_t>(d) + 1]);
    EXPECT_LT(begin, end);
    EXPECT_EQ(static_cast<int64_t>(begin) / batch.sequence_length,
              (static_cast<int64_t>(end) - 1) / batch.sequence_length)
        << "a document crosses sequences";
    for (size_t i = begin; i < end; ++i) EXPECT_EQ(batch.position[i], static_cast<int32_t>(i - begin));
    const bool padding =
        std::all_of(batch.target.begin() + static_cast<ptrdiff_t>(begin),
                    batch.target.begin() + static_cast<ptrdiff_t>(end), [](int32_t t) { return t < 0; }) &&
        batch.token[begin] == 0;
    if (padding) continue;
    std::vector<int32_t> document(batch.token.begin() + static_cast<ptrdiff_t>(begin),
                                  batch.token.begin() + static_cast<ptrdiff_t>(end));
    document.push_back(batch.target[end - 1]);
    documents.push_back(document);
  }
  return documents;
}

/// The positions in each data set, without the counted tokens.
inline std::vector<SetCursor> places(const DataCursor& cursor) {
  std::vector<SetCursor> places;
  for (const SetCursor& set : cursor.sets) places.push_back({set.epoch, set.sequence});
  return places;
}

/// Set s of several has examples from this number times s on.
inline constexpr int64_t kNumbersOfSet = 500;

/// The examples of each step by slot, which must not depend on `ranks`. Checks that all ranks return the same
/// LoaderStep.
struct StepOfAll {
  LoaderStep info;
  std::multiset<int64_t> examples;
  std::vector<std::vector<int64_t>> by_slot;
};

inline std::vector<StepOfAll> read_steps(DataSets datasets, BatchLoaderOptions options, int64_t ranks,
                                         int64_t steps, const DataCursor& start) {
  std::vector<StepOfAll> all(static_cast<size_t>(steps));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    options.data_rank = rank;
    options.data_ranks = ranks;
    BatchLoader loader(datasets, options, start);
    for (int64_t s = 0; s < steps; ++s) {
      StepOfAll& step = all[static_cast<size_t>(s)];
      const auto info = loader.next_step();
      if (!info) break;
      if (rank == 0) {
        step.info = *info;
        step.by_slot.resize(static_cast<size_t>(options.global_batch_sequences));
      }
      EXPECT_EQ(info->end, step.info.end);
      EXPECT_EQ(info->target_count, step.info.target_count);
      for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
        const PackedBatch& batch = loader.next_batch();
        EXPECT_EQ(batch.sequence_count, options.micro_batch_sequences);
        for (const auto& document : documents_of(batch)) step.examples.insert(marked_example(document[0]));
        // The documents of sequence b are in slot (k * B + b) * ranks + rank.
        for (int64_t d = 0; d < batch.document_count(); ++d) {
          const auto at = static_cast<size_t>(batch.document_offset[static_cast<size_t>(d)]);
          const int64_t slot =
              (k * batch.sequence_count + static_cast<int64_t>(at) / batch.sequence_length) * ranks + rank;
          const bool real =
              std::any_of(batch.target.begin() + static_cast<ptrdiff_t>(at),
                          batch.target.begin() + batch.document_offset[static_cast<size_t>(d) + 1],
                          [](int32_t t) { return t >= 0; });
          if (!real) continue;
          if (slot >= options.global_batch_sequences) {
            ADD_FAILURE() << "slot " << slot;
            continue;
          }
          const int64_t example = marked_example(batch.token[at]);
          EXPECT_EQ(batch.sequence_set[at / static_cast<size_t>(batch.sequence_length)],
                    example / kNumbersOfSet);
          step.by_slot[static_cast<size_t>(slot)].push_back(example);
        }
      }
    }
  }
  return all;
}

/// From 50 cursors in all, 1 to 16 data ranks read what one rank reads that reads all `steps`.
inline void expect_the_same_from_any_cursor(DataSets datasets, const BatchLoaderOptions& options,
                                            const std::vector<StepOfAll>& reference, int64_t steps) {
  std::mt19937 random(5);
  for (const int64_t ranks : {1, 2, 3, 4, 6, 8, 16})
    for (int trial = 0; trial < (ranks == 1 ? 2 : 8); ++trial) {
      const int64_t from = static_cast<int64_t>(random() % static_cast<uint32_t>(steps));
      const int64_t count = std::min<int64_t>(4, steps - from);
      BatchLoaderOptions changed = options;
      changed.micro_batch_sequences = 1 + trial % 3;
      const auto again =
          read_steps(datasets, changed, ranks, count, reference[static_cast<size_t>(from)].info.begin);
      for (int64_t s = 0; s < count; ++s) {
        const StepOfAll& want = reference[static_cast<size_t>(from + s)];
        const StepOfAll& got = again[static_cast<size_t>(s)];
        EXPECT_EQ(got.by_slot, want.by_slot) << ranks << " ranks, step " << from + s;
        EXPECT_EQ(got.info.end, want.info.end);
        EXPECT_EQ(got.info.target_count, want.info.target_count);
      }
    }
}

}  // namespace ripstop
