#include "train/plan/training_data.h"

#include <gtest/gtest.h>

#include "data/dataset/batch_loader.h"
#include "tests/data/scratch_directory.h"
#include "tests/train/commands/small_dataset.h"
#include "tests/train/config/small_config.h"
#include "train/plan/run_length.h"

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

// data.shuffle = false deals the file in its order, in each epoch, and a checkpoint's plan hash tells.
TEST_F(TrainingDataTest, WithoutShuffleTheOrderIsTheFiles) {
  const TokenDataset dataset(scratch_ / "train.h5");
  const auto data = [&](const char* shuffle) {
    return *count_training_data(dataset,
                                parsed(kSmallest, {"train.epochs=2", "data.sequence_length=90", shuffle}));
  };
  const SequenceReader reader(dataset, 90, LossOn::kSummary);
  const PackPlan plan(reader.rows(),
                      {.sequence_length = 90, .shuffle_seed = 1, .shuffle = false, .open_sequences = 1});
  int64_t next = 0;
  for (int64_t s = 0; s < plan.sequences(); ++s)
    for (const PackItem& item : plan.sequence(s)) EXPECT_EQ(item.example, next++);
  EXPECT_EQ(data("data.shuffle=false").plan_hash, plan.hash());
  EXPECT_EQ(data("data.shuffle=true").plan_hash,
            PackPlan(reader.rows(), {.sequence_length = 90, .shuffle_seed = 1}).hash());
}

TEST_F(TrainingDataTest, ANoteSaysThatSummariesWillBeCut) {
  const TokenDataset dataset(scratch_ / "train.h5");
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < dataset.examples(); ++i)
    tokens.push_back(dataset.example_end(i) - dataset.target_begin(i));
  std::ranges::sort(tokens);
  const int64_t most = tokens[tokens.size() * 9 / 10];
  const auto note = [&](int64_t max_new_tokens) { return short_summaries_note(dataset, max_new_tokens); };
  EXPECT_EQ(note(most), "");
  EXPECT_HAS(note(most - 1),
             fmt::format("generation.max_new_tokens is {}, a tenth of the summaries of {} have {} "
                         "tokens or more",
                         most - 1, dataset.path().string(), most));
}

TEST_F(TrainingDataTest, ANoteNamesTheSetsWithOtherPrompts) {
  const std::vector<std::string> files = {"a.h5", "b.h5", "c.h5", "d.h5"};
  for (const std::string& file : files) {
    TokenDatasetHeader header;
    header.vocabulary_size = 400;
    header.prompt_template = file == "b.h5" || file == "d.h5" ? "{document} In short:" : "{document}";
    TokenDatasetWriter writer(scratch_ / file, header);
    writer.add({.tokens = {1, 5, 6, 7, 8, 9, 10, 2}, .spans = {{5, 8, 1, 4}}});
    writer.finish();
  }
  const auto note = [&](size_t count) {
    std::vector<TokenDataset> sets;
    for (size_t i = 0; i < count; ++i) sets.emplace_back(scratch_ / files[i]);
    const std::vector<std::string> notes = data_notes(sets, parsed(kSmallest));
    return notes.empty() ? "" : notes.front();
  };
  const auto path = [&](const char* file) { return (scratch_ / file).string(); };
  EXPECT_EQ(note(1), "");
  EXPECT_TRUE(note(3).starts_with(path("b.h5") + " has another prompt than " + path("a.h5"))) << note(3);
  EXPECT_TRUE(note(4).starts_with(path("b.h5") + ", " + path("d.h5") + " have another prompt than "))
      << note(4);
}

// The steps and tokens of several sets in one epoch are those that the loader deals; of sets drawn by weights
// they are expected, and the run's cursors are near.
TEST_F(TrainingDataTest, SeveralSetsAreCountedEach) {
  write_small_dataset(scratch_ / "other.h5", 500, 40);
  std::vector<TokenDataset> sets;
  for (const char* file : {"train.h5", "other.h5"}) sets.emplace_back(scratch_ / file);
  const std::string both = "data.directories=[\"a\", \"b\"]";
  const RunConfig whole = parsed(kSmallest, {both, "train.epochs=3", "data.sequence_length=90"});
  const TrainingData data = *count_training_data(sets, whole);
  BatchLoaderOptions options{.sequence_length = 90,
                             .shuffle_seed = static_cast<uint64_t>(whole.data.shuffle_seed),
                             .global_batch_sequences = whole.train.global_batch_sequences,
                             .epochs = 3};
  const auto deal = [&](int64_t most) {
    BatchLoader loader(sets, options);
    LoaderStep sum;
    for (int64_t steps = 0; steps < most; ++steps) {
      const std::optional<LoaderStep> step = loader.next_step();
      if (!step) break;
      sum.rows += step->rows;
      sum.sequences += 1;
      sum.end = step->end;
      for (int64_t batch = 0; batch < loader.batches_per_step(); ++batch) loader.next_batch();
    }
    return sum;
  };
  const LoaderStep dealt = deal(1000);
  EXPECT_EQ(data.steps, dealt.sequences);
  EXPECT_EQ(data.tokens, dealt.rows);
  EXPECT_EQ(data.examples, 160);
  EXPECT_EQ(data.sets[1].examples, 40);
  EXPECT_EQ(data.sets[0].epoch_sequences + data.sets[1].epoch_sequences, data.epoch_sequences);
  EXPECT_EQ(data.plan_hash, count_epoch_sequences(sets[0], options, 0).plan_hash + " " +
                                count_epoch_sequences(sets[1], options, 0, 1).plan_hash);

  const RunConfig drawn =
      parsed(kSmallest, {both, "data.weights=[1, 3]", "train.steps=60", "data.sequence_length=90"});
  const TrainingData expected = *count_training_data(sets, drawn);
  EXPECT_EQ(expected.epochs, 0) << "there are no common epochs";
  EXPECT_DOUBLE_EQ(expected.sets[1].epochs,
                   0.75 * 60 * 8 / static_cast<double>(expected.sets[1].epoch_sequences));
  options.epochs = 0;
  options.shares = {0.25, 0.75};
  const LoaderStep sum = deal(60);
  EXPECT_NEAR(static_cast<double>(sum.rows), static_cast<double>(expected.tokens),
              0.05 * static_cast<double>(sum.rows));
  EXPECT_NEAR(static_cast<double>(sum.end.sets[1].epoch), expected.sets[1].epochs, 2);

  RunLength length;
  length.data = expected;
  length.steps = expected.steps;
  const std::vector<LengthLine> lines = length_lines(drawn, length);
  EXPECT_TRUE(lines[1].text.starts_with("b: 40 examples")) << lines[1].text;
  EXPECT_TRUE(
      lines[1].text.ends_with(fmt::format("; {} sequences an epoch, 75% of the run's, about {:.3g} epochs",
                                          expected.sets[1].epoch_sequences, expected.sets[1].epochs)))
      << lines[1].text;
  EXPECT_EQ(lines[2].text, fmt::format("60 steps, about {} tokens", expected.tokens));
}

// The last step of fewer epochs is a part of one, so more epochs than planned take one step more.
TEST_F(TrainingDataTest, ARunThatGoesOnHasTheStepsThatAreLeft) {
  const TokenDataset dataset(scratch_ / "train.h5");
  for (const char* pack : {"data.pack=true", "data.pack=false"}) {
    const auto of_epochs = [&](int64_t epochs) {
      return parsed(kSmallest, {fmt::format("train.epochs={}", epochs), "data.sequence_length=90",
                                "train.global_batch_sequences=7", pack});
    };
    const bool packs = of_epochs(1).data.pack;
    const auto deal = [&](const CheckpointState& from, int64_t epochs, int64_t most) {
      BatchLoader loader(dataset,
                         {.sequence_length = 90,
                          .pack = packs,
                          .shuffle_seed = static_cast<uint64_t>(of_epochs(1).data.shuffle_seed),
                          .global_batch_sequences = 7,
                          .epochs = epochs},
                         from.cursor);
      CheckpointState at = from;
      while (at.step < most) {
        const std::optional<LoaderStep> step = loader.next_step();
        if (!step) break;
        ++at.step;
        at.cursor = step->end;
        for (int64_t batch = 0; batch < loader.batches_per_step(); ++batch) loader.next_batch();
      }
      return at;
    };
    TrainingData data = *count_training_data(dataset, of_epochs(1));
    const CheckpointState done = deal({}, 1, 1000), inside = deal({}, 3, data.steps + 2);
    EXPECT_EQ(done.step, data.steps);
    ASSERT_NE(data.epoch_sequences % 7, 0) << "the last step is whole";
    for (const CheckpointState& from : {CheckpointState{}, done, inside, deal(done, 2, done.step + 2)})
      for (const int64_t epochs : {2, 3}) {
        ASSERT_TRUE(count_run(data, dataset, of_epochs(epochs), from));
        EXPECT_EQ(data.steps, deal(from, epochs, 1000).step) << pack << epochs << from.step;
        EXPECT_EQ(data.tokens, epochs * data.epoch_tokens);
      }
    count_run(data, dataset, of_epochs(1), inside);
    EXPECT_LT(data.steps, inside.step) << "as many epochs are done already";
    EXPECT_FALSE(count_run(data, dataset, of_epochs(9), done, [] { return false; }) && packs);
  }
}

// With other weights, what is used stays, and what is left is drawn by them.
TEST_F(TrainingDataTest, OtherWeightsDrawWhatIsLeft) {
  write_small_dataset(scratch_ / "other.h5", 500, 40);
  std::vector<TokenDataset> sets;
  for (const char* file : {"train.h5", "other.h5"}) sets.emplace_back(scratch_ / file);
  const RunConfig config = parsed(kSmallest, {"data.directories=[\"a\", \"b\"]", "data.weights=[0, 1]",
                                              "train.steps=60", "data.sequence_length=90"});
  TrainingData data = *count_training_data(sets, config);
  const auto sequences = [&](size_t set) { return static_cast<double>(data.sets[set].epoch_sequences); };
  CheckpointState from;
  from.step = 50;
  from.cursor = {0, 400, {{7, 3, 9000}, {0, 1, 50}}};
  from.tokens = 9050;
  ASSERT_TRUE(count_run(data, sets, config, from));
  EXPECT_EQ(data.steps, 60);
  EXPECT_DOUBLE_EQ(data.sets[0].epochs, 7 + 3 / sequences(0));
  EXPECT_DOUBLE_EQ(data.sets[1].epochs, (1 + 10 * 8) / sequences(1));
  EXPECT_NEAR(static_cast<double>(data.tokens),
              9050 + 80 / sequences(1) * static_cast<double>(data.sets[1].epoch_tokens), 0.51);
  RunLength length;
  length.data = data;
  EXPECT_HAS(length_lines(config, length)[1].text, "an epoch, 100% of those after step 50, about ");

  // One set, or several without weights, have a place in common epochs.
  const RunConfig whole = parsed(kSmallest, {"train.steps=60", "data.sequence_length=90"});
  TrainingData one = *count_training_data(sets[1], whole);
  from.step = 58;
  from.cursor = {30, 2};
  from.tokens = 5000;
  ASSERT_TRUE(count_run(one, sets[1], whole, from));
  EXPECT_DOUBLE_EQ(one.epochs, 30 + (2 + 2 * 8) / sequences(1));
  EXPECT_NEAR(static_cast<double>(one.tokens),
              5000 + 16 / sequences(1) * static_cast<double>(one.epoch_tokens), 0.51);
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
