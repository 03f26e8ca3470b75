#include "train/plan/training_data.h"

#include <gtest/gtest.h>

#include "data/dataset/batch_loader.h"
#include "tests/data/scratch_directory.h"
#include "tests/train/commands/small_dataset.h"
#include "tests/train/config/small_config.h"

namespace ripstop {
namespace {

using small_config::kSmallest;
using small_config::parsed;

class TrainingDataTest : public ::testing::Test {
 protected:
  void SetUp() override { write_small_dataset(scratch_ / "train.h5", 0, 120); }
  ScratchDirectory scratch_;
};

// The numbers counted from lengths equal those of the loader.
TEST_F(TrainingDataTest, CountsWhatTheLoaderDeals) {
  const TokenDataset dataset(scratch_ / "train.h5");
  for (const char* pack : {"data.pack=true", "data.pack=false"}) {
    const RunConfig config = parsed(
        kSmallest, {"train.epochs=3", "data.sequence_length=90", "train.global_batch_sequences=7", pack});
    const TrainingData data = *count_training_data(dataset, config);
    BatchLoader loader(dataset, {.sequence_length = 90,
                                 .pack = config.data.pack,
                                 .shuffle_seed = static_cast<uint64_t>(config.data.shuffle_seed),
                                 .global_batch_sequences = 7,
                                 .epochs = 3});
    int64_t steps = 0, tokens = 0;
    while (const std::optional<LoaderStep> step = loader.next_step()) {
      ++steps;
      tokens += step->rows;
      for (int64_t batch = 0; batch < loader.batches_per_step(); ++batch) loader.next_batch();
    }
    EXPECT_EQ(data.steps, steps) << pack;
    EXPECT_EQ(data.tokens, tokens) << pack;
    EXPECT_EQ(3 * data.epoch_tokens, tokens) << pack;
    EXPECT_EQ(data.epoch_sequences, loader.sequences_per_epoch()) << pack;
    EXPECT_EQ(data.epochs, 3);
  }
}

TEST_F(TrainingDataTest, StepsWithoutEpochsAreAPartOfThem) {
  const TokenDataset dataset(scratch_ / "train.h5");
  const TrainingData data = *count_training_data(
      dataset, parsed(kSmallest, {"train.steps=10", "data.sequence_length=90", "data.pack=false"}));
  EXPECT_EQ(data.steps, 10);
  EXPECT_EQ(data.epoch_sequences, 120);
  EXPECT_DOUBLE_EQ(data.epochs, 10 * 8 / 120.0);
  EXPECT_NEAR(static_cast<double>(data.tokens), data.epochs * static_cast<double>(data.epoch_tokens), 0.51);
}

TEST_F(TrainingDataTest, CutDocumentsSummariesAndTokensAreCounted) {
  const TokenDataset dataset(scratch_ / "train.h5");
  for (const int64_t length : {12, 60, 1000}) {
    const TrainingData data =
        *count_training_data(dataset, parsed(kSmallest, {"model.max_position_embeddings=1000",
                                                         fmt::format("data.sequence_length={}", length)}));
    int64_t documents = 0, summaries = 0, tokens = 0;
    for (int64_t i = 0; i < dataset.examples(); ++i) {
      const int64_t rows = dataset.example_end(i) - dataset.example_begin(i) - 1;
      if (rows <= length) continue;
      tokens += rows - length;
      ++(dataset.example_end(i) - dataset.separator_begin(i) <= length ? documents : summaries);
    }
    EXPECT_EQ(data.examples, 120);
    EXPECT_EQ(data.cut_documents, documents);
    EXPECT_EQ(data.cut_summaries, summaries);
    EXPECT_EQ(data.cut_tokens, tokens);
    EXPECT_EQ(summaries > 0, length == 12);
    EXPECT_EQ(documents > 0, length == 60);
  }
}

}  // namespace
}  // namespace ripstop
