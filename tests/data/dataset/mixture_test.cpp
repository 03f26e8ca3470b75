// Several data sets in one loader.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "data/dataset/batch_loader.h"
#include "tests/data/dataset/loader_steps.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

class MixtureTest : public ::testing::Test {
 protected:
  void add(int64_t examples, ExampleKind kind = ExampleKind::kSummary) {
    const int64_t number = std::ssize(sets_);
    const auto path = scratch_ / ("set" + std::to_string(number) + ".h5");
    auto lengths = random_lengths(examples, 25, 11 + static_cast<uint32_t>(number));
    for (MarkedLengths& length : lengths) length.document += 2;  // a text has two tokens or more
    write_marked_dataset(path, lengths, kind, 1, number * kNumbersOfSet);
    sets_.emplace_back(path);
  }

  static BatchLoaderOptions options(std::vector<double> shares = {}) {
    BatchLoaderOptions options;
    options.sequence_length = 40;
    options.shuffle_seed = 99;
    options.global_batch_sequences = 6;
    options.micro_batch_sequences = 2;
    options.shares = std::move(shares);
    return options;
  }

  ScratchDirectory scratch_;
  std::vector<TokenDataset> sets_;
};

// Each count is within 4.5 standard deviations of the multinomial distribution, and so is each pair of draws
// that follow each other.
TEST_F(MixtureTest, ManyDrawsAreWithinTheBoundsOfTheMultinomial) {
  constexpr int64_t kDraws = 100'000;
  const std::vector<int64_t> chances = {7, 0, 2, 1};
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{12345}}) {
    std::vector<int64_t> counts(chances.size());
    std::map<std::pair<size_t, size_t>, int64_t> pairs;
    size_t before = draw_set(chances, seed, -1);
    for (int64_t i = 0; i < kDraws; ++i) {
      const size_t set = draw_set(chances, seed, i);
      ++counts[set], ++pairs[{before, set}];
      before = set;
    }
    const auto expect_share = [&](double share, int64_t count) {
      EXPECT_NEAR(static_cast<double>(count), share * kDraws, 4.5 * std::sqrt(kDraws * share * (1 - share)))
          << seed;
    };
    for (size_t a = 0; a < chances.size(); ++a) {
      expect_share(static_cast<double>(chances[a]) / 10, counts[a]);
      for (size_t b = 0; b < chances.size(); ++b)
        expect_share(static_cast<double>(chances[a] * chances[b]) / 100, pairs[{a, b}]);
    }
  }
}

// Without weights three epochs have every example of every set three times, mixed, in an order that neither
// the number of ranks nor the cursor changes.
TEST_F(MixtureTest, WithoutWeightsAnEpochHasEveryExampleOnce) {
  add(157), add(41), add(90, ExampleKind::kText);
  BatchLoaderOptions all = options();
  all.epochs = 3;
  const auto reference = read_steps(sets_, all, 1, 400, {});
  std::map<int64_t, int64_t> uses;
  int64_t steps = 0, changes = 0;
  std::vector<int64_t> labels;
  for (const StepOfAll& step : reference) {
    if (step.info.sequences == 0) break;
    ++steps;
    for (const int64_t e : step.examples) ++uses[e];
    for (const auto& slot : step.by_slot)
      if (!slot.empty()) labels.push_back(slot.front() / kNumbersOfSet);
  }
  ASSERT_LT(steps, 400);
  EXPECT_EQ(uses.size(), 157u + 41 + 90);
  for (const auto& [example, count] : uses) EXPECT_EQ(count, 3) << "example " << example;
  for (size_t i = 1; i < labels.size(); ++i) changes += labels[i] != labels[i - 1];
  EXPECT_GT(changes, std::ssize(labels) / 4) << "the sets are not mixed";
  const DataCursor end = reference[static_cast<size_t>(steps) - 1].info.end;
  EXPECT_EQ(end, (DataCursor{3, 0, end.sets}));
  EXPECT_EQ(places(end), (std::vector<SetCursor>(3, {3, 0})));
  for (size_t set = 0; set < sets_.size(); ++set) {
    const SequenceReader reader(sets_[set], all.sequence_length, all.loss_on);
    EXPECT_EQ(end.sets[set].tokens, 3 * std::reduce(reader.rows().begin(), reader.rows().end(), int64_t{0}));
  }
  expect_the_same_from_any_cursor(sets_, all, reference, steps);
}

// With weights every set has epochs of its own: three of the smallest set hold each of its examples three
// times, while the largest is still in its first.
TEST_F(MixtureTest, WithWeightsEverySetHasItsOwnEpochs) {
  add(157), add(20), add(90);
  const BatchLoaderOptions weighted = options({0.5, 0.3, 0.2});
  constexpr int64_t kSteps = 60;
  const auto reference = read_steps(sets_, weighted, 1, kSteps, {});
  std::vector<std::map<int64_t, std::map<int64_t, int64_t>>> uses(sets_.size());  // set, epoch, example
  std::vector<SetCursor> at(sets_.size());
  std::vector<int64_t> sequences(sets_.size()), rows(sets_.size());
  for (const StepOfAll& step : reference) {
    // Slots are in the order of the draws, so a set's cursor says the epoch of each of its sequences.
    for (const auto& slot : step.by_slot) {
      ASSERT_FALSE(slot.empty());
      const auto set = static_cast<size_t>(slot.front() / kNumbersOfSet);
      BatchLoaderOptions one = weighted;
      const int64_t length = count_epoch_sequences(sets_[set], one, at[set].epoch, set).sequences;
      for (const int64_t example : slot) ++uses[set][at[set].epoch][example];
      if (++at[set].sequence == length) at[set] = {at[set].epoch + 1, 0};
      ++sequences[set];
    }
    EXPECT_EQ(places(step.info.end), at);
    EXPECT_EQ(step.info.end.epoch, 0);
    EXPECT_EQ(step.info.end.sequence, std::reduce(sequences.begin(), sequences.end()));
    for (size_t set = 0; set < sets_.size(); ++set) rows[set] += step.info.sets[set].sequences;
  }
  EXPECT_EQ(rows, sequences);
  EXPECT_GE(at[1].epoch, 3) << "the small set did not end often enough";
  EXPECT_LT(at[0].epoch, at[1].epoch);
  for (size_t set = 0; set < sets_.size(); ++set)
    for (int64_t epoch = 0; epoch < at[set].epoch; ++epoch) {
      EXPECT_EQ(std::ssize(uses[set][epoch]), sets_[set].examples()) << set << ", epoch " << epoch;
      for (const auto& [example, count] : uses[set][epoch]) EXPECT_EQ(count, 1) << example;
    }
  expect_the_same_from_any_cursor(sets_, weighted, reference, kSteps);
}

TEST_F(MixtureTest, OneSetOfAMixtureKeepsTheOrderThatItHasAlone) {
  add(157), add(41);
  const auto alone = read_steps(sets_[0], options(), 1, 30, {});
  EXPECT_TRUE(alone[0].info.end.sets.empty());
  for (const std::vector<double>& weights : {std::vector<double>{}, {0.8, 0.2}}) {
    std::vector<std::vector<int64_t>> mixed, single;
    for (const StepOfAll& step : read_steps(sets_, options(weights), 1, 12, {}))
      for (const auto& slot : step.by_slot)
        if (slot.front() < kNumbersOfSet) mixed.push_back(slot);
    for (const StepOfAll& step : alone) single.insert(single.end(), step.by_slot.begin(), step.by_slot.end());
    ASSERT_GT(mixed.size(), 20u);
    single.resize(mixed.size());
    EXPECT_EQ(mixed, single);
  }
}

TEST_F(MixtureTest, ASetOfShareZeroIsNeverDrawn) {
  add(30), add(40), add(50);
  for (const StepOfAll& step : read_steps(sets_, options({0.75, 0, 0.25}), 1, 40, {}))
    EXPECT_EQ(step.info.end.sets[1], (SetCursor{0, 0}));
}

// Other weights from a cursor on: what comes is the next of each set's epoch.
TEST_F(MixtureTest, OtherWeightsGoOnWhereEachSetStands) {
  add(60), add(60);
  const auto before = read_steps(sets_, options({0.9, 0.1}), 1, 8, {});
  const auto after = read_steps(sets_, options({0.1, 0.9}), 1, 8, before.back().info.end);
  std::map<int64_t, int64_t> uses;
  for (const auto* steps : {&before, &after})
    for (const StepOfAll& step : *steps)
      for (const int64_t example : step.examples) ++uses[example];
  const auto& end = after.back().info.end;
  EXPECT_EQ(end.sequence, 96);
  EXPECT_EQ(after.front().info.begin, before.back().info.end);
  ASSERT_EQ(end.sets[0].epoch, 1) << "an epoch ends in the first part";
  for (int64_t example = 0; example < 60; ++example) EXPECT_GE(uses[example], 1);
}

TEST_F(MixtureTest, WithoutShufflingSetFollowsSet) {
  add(20), add(20);
  BatchLoaderOptions in_order = options();
  in_order.shuffle = false;
  in_order.open_sequences = 1;
  in_order.epochs = 1;
  std::vector<int64_t> examples;
  for (const StepOfAll& step : read_steps(sets_, in_order, 1, 30, {}))
    for (const auto& slot : step.by_slot) examples.insert(examples.end(), slot.begin(), slot.end());
  EXPECT_EQ(std::ssize(examples), 40);
  EXPECT_TRUE(std::ranges::is_sorted(examples));
}

TEST_F(MixtureTest, ComingDocumentsCountEverySet) {
  add(157), add(41);
  for (const std::vector<double>& weights : {std::vector<double>{}, {0.5, 0.5}}) {
    BatchLoaderOptions given = options(weights);
    given.data_ranks = 2;
    const auto coming = coming_documents(sets_, given, {}, 7);
    std::map<DocumentSizes, int64_t> dealt;
    for (given.data_rank = 0; given.data_rank < 2; ++given.data_rank) {
      BatchLoader loader(sets_, given);
      for (int64_t step = 0; step < 7; ++step) {
        ASSERT_TRUE(loader.next_step());
        for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
          const PackedBatch& batch = loader.next_batch();
          DocumentSizes sizes{batch.document_count(), 0};
          for (size_t d = 1; d < batch.document_offset.size(); ++d)
            sizes.longest =
                std::max<int64_t>(sizes.longest, batch.document_offset[d] - batch.document_offset[d - 1]);
          ++dealt[sizes];
        }
      }
    }
    EXPECT_EQ(coming, dealt);
  }
}

TEST_F(MixtureTest, RefusesACursorOutsideAndAnEmptySet) {
  add(30), add(30);
  const auto refusal = [&](const BatchLoaderOptions& given, const DataCursor& start) {
    return what_of([&] { BatchLoader loader(sets_, given, start); }, ExitCode::kInputData);
  };
  const BatchLoaderOptions weighted = options({0.5, 0.5});
  EXPECT_HAS(refusal(options(), {0, 1000}), "wants to go on at sequence 1000");
  EXPECT_HAS(refusal(weighted, {0, 5, {{0, 2}, {0, 1000}}}), "set1.h5: epoch 0");
  EXPECT_HAS(refusal(weighted, {0, 5, {{0, 2}, {-1, 0}}}), "set1.h5");
  EXPECT_HAS(refusal(weighted, {0, 5, {{0, 2}}}), "in 1 data sets, and there are 2");
  EXPECT_EQ(refusal(weighted, {0, 5000, {{7, 2}, {0, 3}}}), "");
  add(0);
  EXPECT_HAS(refusal(options(), {}), "set2.h5: has no examples");
}

}  // namespace
}  // namespace ripstop
