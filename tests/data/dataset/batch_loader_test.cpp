#include "data/dataset/batch_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "data/dataset/sequence_reader.h"
#include "tests/data/dataset/loader_steps.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

// Every example comes exactly once in an epoch, in the same order for any number of data ranks, from any
// cursor.
TEST(BatchLoaderTest, EveryExampleOncePerEpochInAnOrderThatNoNumberOfRanksChanges) {
  ScratchDirectory scratch;
  constexpr int64_t kExamples = 157;
  write_marked_dataset(scratch / "train.h5", random_lengths(kExamples, 30, 11));
  const TokenDataset dataset(scratch / "train.h5");
  for (const bool pack : {true, false}) {
    BatchLoaderOptions options;
    options.sequence_length = 40;
    options.pack = pack;
    options.shuffle_seed = 99;
    options.global_batch_sequences = 12;
    options.micro_batch_sequences = 2;
    options.epochs = 3;
    const auto reference = read_steps(dataset, options, 1, 200, {});
    std::map<int64_t, int64_t> uses;
    int64_t steps = 0, sequences = 0;
    for (const StepOfAll& step : reference) {
      if (step.info.sequences == 0) break;
      ++steps;
      sequences += step.info.sequences;
      for (const int64_t e : step.examples) ++uses[e];
    }
    ASSERT_LT(steps, 200);
    EXPECT_EQ(static_cast<int64_t>(uses.size()), kExamples);
    for (const auto& [example, count] : uses) EXPECT_EQ(count, 3) << "example " << example;
    EXPECT_EQ(reference[static_cast<size_t>(steps) - 1].info.end, (DataCursor{3, 0}));

    expect_the_same_from_any_cursor(dataset, options, reference, steps);
  }
}

// coming_documents, which reads no token, equals the batches that the loaders of all ranks deal.
TEST(BatchLoaderTest, ComingDocumentsAreThoseThatAreDealt) {
  ScratchDirectory scratch;
  write_marked_dataset(scratch / "train.h5", random_lengths(157, 90, 11));
  const TokenDataset dataset(scratch / "train.h5");
  BatchLoaderOptions options;
  options.sequence_length = 100;
  options.shuffle_seed = 99;
  options.global_batch_sequences = 7;
  options.micro_batch_sequences = 2;
  options.data_ranks = 3;
  options.epochs = 2;
  const DataCursor start{0, 5};
  for (const int64_t steps : {1, 3, 1000}) {
    std::map<DocumentSizes, int64_t> dealt;
    for (options.data_rank = 0; options.data_rank < options.data_ranks; ++options.data_rank) {
      BatchLoader loader(dataset, options, start);
      for (int64_t step = 0; step < steps && loader.next_step(); ++step)
        for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
          const PackedBatch& batch = loader.next_batch();
          DocumentSizes sizes{.count = batch.document_count()};
          for (size_t d = 1; d < batch.document_offset.size(); ++d)
            sizes.longest =
                std::max<int64_t>(sizes.longest, batch.document_offset[d] - batch.document_offset[d - 1]);
          ++dealt[sizes];
        }
    }
    options.data_rank = 0;
    EXPECT_GT(dealt.size(), 1U);
    EXPECT_EQ(coming_documents(dataset, options, start, steps), dealt) << steps << " steps";
  }
}

TEST(BatchLoaderTest, EveryEpochIsExactlyTheSetEvenWhereStepsCrossItsEnd) {
  ScratchDirectory scratch;
  constexpr int64_t kExamples = 53;
  write_marked_dataset(scratch / "train.h5", random_lengths(kExamples, 9, 2));
  const TokenDataset dataset(scratch / "train.h5");
  BatchLoaderOptions options;
  options.sequence_length = 32;
  options.shuffle_seed = 3;
  options.global_batch_sequences = 7;
  BatchLoader loader(dataset, options);
  std::vector<int64_t> sequence;
  std::vector<int64_t> first_epoch;
  while (sequence.size() < 3 * kExamples) {
    const auto step = loader.next_step();
    ASSERT_TRUE(step);
    EXPECT_EQ(step->sequences, 7);
    for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
      for (const auto& d : documents_of(loader.next_batch())) sequence.push_back(marked_example(d[0]));
    }
  }
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> part(sequence.begin() + epoch * kExamples,
                              sequence.begin() + (epoch + 1) * kExamples);
    if (epoch == 0) first_epoch = part;
    if (epoch > 0) {
      EXPECT_NE(part, first_epoch) << "epochs have the same order";
    }
    std::sort(part.begin(), part.end());
    for (int64_t i = 0; i < kExamples; ++i) EXPECT_EQ(part[static_cast<size_t>(i)], i);
  }
}

TEST(BatchLoaderTest, TargetsAreTheSummaryAndTheCountsAreTrue) {
  ScratchDirectory scratch;
  const auto lengths = random_lengths(60, 30, 4);
  write_marked_dataset(scratch / "train.h5", lengths);
  const TokenDataset dataset(scratch / "train.h5");
  for (const LossOn loss_on : {LossOn::kSummary, LossOn::kAll}) {
    BatchLoaderOptions options;
    options.sequence_length = 48;
    options.loss_on = loss_on;
    options.global_batch_sequences = 5;
    options.micro_batch_sequences = 2;
    options.epochs = 1;
    BatchLoader loader(dataset, options);
    int64_t targets = 0, rows = 0, expected = 0, expected_rows = 0;
    while (const auto step = loader.next_step()) {
      int64_t in_step = 0;
      for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
        const PackedBatch& batch = loader.next_batch();
        in_step += batch.target_count;
        for (size_t i = 0; i < batch.target.size(); ++i) {
          if (batch.target[i] < 0) continue;
          ++targets;
          EXPECT_EQ(batch.target[i], batch.token[i] + 1);
          const auto& l = lengths[static_cast<size_t>(marked_example(batch.token[i]))];
          if (loss_on == LossOn::kSummary) {
            EXPECT_GE(marked_place(batch.target[i]), l.document + 3);
          }
        }
      }
      EXPECT_EQ(in_step, step->target_count);
      rows += step->rows;
    }
    for (const auto& l : lengths) {
      expected += loss_on == LossOn::kSummary ? l.summary : l.tokens() - 1;
      expected_rows += l.tokens() - 1;
    }
    EXPECT_EQ(targets, expected);
    EXPECT_EQ(rows, expected_rows);
  }
}

TEST(BatchLoaderTest, CutsTheDocumentsTailNeverSeparatorOrSummary) {
  ScratchDirectory scratch;
  const std::vector<MarkedLengths> lengths = {{100, 5}, {3, 4}, {28, 5}, {29, 5}, {30, 40}};
  write_marked_dataset(scratch / "train.h5", lengths);
  const TokenDataset dataset(scratch / "train.h5");
  BatchLoaderOptions options;
  options.sequence_length = 36;  // keeps 37 tokens
  options.pack = false;
  options.shuffle = false;
  options.loss_on = LossOn::kSummary;
  options.global_batch_sequences = 1;
  options.epochs = 1;
  BatchLoader loader(dataset, options);
  const SequenceReader reader(dataset, options.sequence_length, options.loss_on);
  EXPECT_EQ(reader.cut_documents(), 1);
  EXPECT_EQ(reader.cut_summaries(), 1);
  std::vector<std::vector<int64_t>> places;
  std::vector<int64_t> targets;
  while (const auto step = loader.next_step()) {
    const PackedBatch& batch = loader.next_batch();
    for (const auto& d : documents_of(batch)) {
      places.emplace_back();
      for (const int32_t token : d) places.back().push_back(marked_place(token));
    }
    targets.push_back(step->target_count);
    EXPECT_EQ(batch.target_count, step->target_count);
  }
  ASSERT_EQ(places.size(), 5u);
  const auto range = [](int64_t begin, int64_t end) {
    std::vector<int64_t> numbers;
    for (; begin < end; ++begin) numbers.push_back(begin);
    return numbers;
  };
  std::vector<int64_t> cut = range(0, 29);
  for (const int64_t p : range(100, 108)) cut.push_back(p);
  EXPECT_EQ(places[0], cut);
  EXPECT_EQ(places[1], range(0, 10));
  EXPECT_EQ(places[2], range(0, 36));
  EXPECT_EQ(places[3], range(0, 37));
  std::vector<int64_t> alone = {0};  // BOS, separator, and the tokens of the summary that fit
  for (const int64_t p : range(30, 66)) alone.push_back(p);
  EXPECT_EQ(places[4], alone);
  EXPECT_EQ(targets, (std::vector<int64_t>{5, 4, 5, 5, 33}));
}

TEST(BatchLoaderTest, ALimitTakesTheFirstExamples) {
  ScratchDirectory scratch;
  write_marked_dataset(scratch / "test.h5", {{8, 3}, {60, 3}, {9, 3}, {70, 3}, {8, 3}});
  const TokenDataset dataset(scratch / "test.h5");
  for (const auto& [limit, taken, cut] : {std::array{0, 5, 2}, {2, 2, 1}, {4, 4, 2}, {9, 5, 2}}) {
    BatchLoaderOptions options;
    options.sequence_length = 32;
    options.shuffle = false;
    options.epochs = 1;
    options.global_batch_sequences = 100;
    options.examples = limit;
    BatchLoader loader(dataset, options);
    EXPECT_EQ(SequenceReader(dataset, 32, options.loss_on, limit).cut_documents(), cut) << limit;
    ASSERT_TRUE(loader.next_step());
    std::set<int64_t> seen;
    for (int64_t k = 0; k < loader.batches_per_step(); ++k)
      for (const auto& document : documents_of(loader.next_batch())) seen.insert(marked_example(document[0]));
    EXPECT_EQ(std::ssize(seen), taken) << limit;
    EXPECT_EQ(*seen.rbegin(), taken - 1) << limit;
    EXPECT_FALSE(loader.next_step());
  }
}

TEST(BatchLoaderTest, LongTextBecomesPiecesThatPredictEveryTokenOnce) {
  ScratchDirectory scratch;
  const std::vector<MarkedLengths> lengths = {{1000, 0}, {2, 0}, {33, 0}, {34, 0}, {65, 0}};
  write_marked_dataset(scratch / "train.h5", lengths, ExampleKind::kText);
  const TokenDataset dataset(scratch / "train.h5");
  BatchLoaderOptions options;
  options.sequence_length = 32;
  options.global_batch_sequences = 3;
  options.epochs = 1;
  BatchLoader loader(dataset, options);
  EXPECT_EQ(SequenceReader(dataset, 32, options.loss_on).cut_documents(), 0);
  std::set<int32_t> predicted;
  size_t counted = 0;
  while (const auto step = loader.next_step()) {
    counted += static_cast<size_t>(step->target_count);
    for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
      for (const auto& d : documents_of(loader.next_batch())) {
        for (size_t i = 1; i < d.size(); ++i) {
          EXPECT_EQ(d[i], d[i - 1] + 1);
          EXPECT_TRUE(predicted.insert(d[i]).second);
        }
      }
    }
  }
  EXPECT_EQ(predicted.size(), 999u + 1 + 32 + 33 + 64);
  EXPECT_EQ(counted, predicted.size());
}

TEST(BatchLoaderTest, ARunsEndHasEmptySequencesOnAllRanksAlike) {
  ScratchDirectory scratch;
  write_marked_dataset(scratch / "train.h5", std::vector<MarkedLengths>(5, {8, 3}));
  const TokenDataset dataset(scratch / "train.h5");
  for (int64_t rank = 0; rank < 4; ++rank) {
    BatchLoaderOptions options;
    options.sequence_length = 16;
    options.pack = false;
    options.global_batch_sequences = 4;
    options.data_rank = rank;
    options.data_ranks = 4;
    options.epochs = 1;
    BatchLoader loader(dataset, options);
    EXPECT_EQ(loader.batches_per_step(), 1);
    ASSERT_TRUE(loader.next_step());
    EXPECT_GT(loader.next_batch().target_count, 0);
    const auto last = loader.next_step();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->sequences, 1);
    EXPECT_EQ(loader.next_batch().target_count > 0, rank == 0);
    EXPECT_FALSE(loader.next_step());
    EXPECT_FALSE(loader.next_step());
  }
}

TEST(BatchLoaderTest, DamageUnderARunningLoaderReachesTheCaller) {
  ScratchDirectory scratch;
  const auto path = scratch / "train.h5";
  write_marked_dataset(path, random_lengths(200, 200, 8));
  const TokenDataset dataset(path);
  const auto at = Hdf5File(path).array("tokens");
  {
    OutputFile out(path, OutputFile::Mode::kExisting);
    const int32_t wrong = 7;
    out.write_at(at.offset_bytes + at.bytes() / 2, &wrong, 4);
  }
  BatchLoaderOptions options;
  options.sequence_length = 256;
  options.global_batch_sequences = 2;
  BatchLoader loader(dataset, options);
  expect_error(
      [&] {
        for (int i = 0; i < 1000; ++i) {
          loader.next_step();
          for (int64_t k = 0; k < loader.batches_per_step(); ++k) loader.next_batch();
        }
      },
      ExitCode::kInputData, "damaged");
}

TEST(BatchLoaderTest, RefusesWhatCannotWork) {
  ScratchDirectory scratch;
  write_marked_dataset(scratch / "none.h5", {});
  write_marked_dataset(scratch / "some.h5", random_lengths(5, 9, 1));
  BatchLoaderOptions options;
  options.sequence_length = 16;
  options.global_batch_sequences = 1;
  const TokenDataset none(scratch / "none.h5"), some(scratch / "some.h5");
  EXPECT_THROW(BatchLoader(none, options), Error);
  EXPECT_THROW(BatchLoader(some, options, {0, 1000}), Error);
  EXPECT_THROW(BatchLoader(some, options, {-1, 0}), Error);
  BatchLoader unread(some, options);  // destroyed while its thread waits for room
}

}  // namespace
}  // namespace ripstop
