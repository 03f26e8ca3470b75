#include "data/dataset/example_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "data/dataset/batch_loader.h"
#include "data/dataset/sequence_reader.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"

namespace ripstop {
namespace {

/// The rows of a document: the tokens that the model reads, and their targets, -1 if they do not count.
using DocumentRows = std::pair<std::vector<int32_t>, std::vector<int32_t>>;

/// The documents that the loader deals in one epoch, without padding.
std::vector<DocumentRows> dealt_documents(const TokenDataset& dataset, const ExampleViewOptions& view,
                                          bool pack) {
  BatchLoaderOptions options;
  options.sequence_length = view.sequence_length;
  options.loss_on = view.loss_on;
  options.pack = options.shuffle = pack;
  options.global_batch_sequences = 1;
  options.epochs = 1;
  BatchLoader loader(dataset, options);
  std::vector<DocumentRows> documents;
  while (loader.next_step()) {
    const PackedBatch& batch = loader.next_batch();
    for (int64_t d = 0; d < batch.document_count(); ++d) {
      const auto begin = batch.document_offset[static_cast<size_t>(d)];
      const auto end = batch.document_offset[static_cast<size_t>(d) + 1];
      const DocumentRows rows = {{batch.token.begin() + begin, batch.token.begin() + end},
                                 {batch.target.begin() + begin, batch.target.begin() + end}};
      // Padding has token 0, which otherwise occurs only as the first token of example 0.
      const bool padding =
          std::all_of(rows.first.begin(), rows.first.end(), [](int32_t t) { return t == 0; });
      if (!padding) documents.push_back(rows);
    }
  }
  return documents;
}

std::vector<DocumentRows> rows_of(const std::vector<ExampleView>& views) {
  std::vector<DocumentRows> documents;
  for (const ExampleView& view : views) {
    DocumentRows& rows = documents.emplace_back();
    rows.first.assign(view.token.begin(), view.token.end() - 1);
    rows.second.resize(rows.first.size(), -1);
    for (const TokenRange& range : view.targets)
      for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i)
        rows.second.at(i - 1) = view.token.at(i);
  }
  return documents;
}

std::vector<int64_t> all_examples(const TokenDataset& dataset) {
  std::vector<int64_t> numbers(static_cast<size_t>(dataset.examples()));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  return numbers;
}

// No BOS, or several tokens of it: the separator stays whole, and nothing more of the document is kept than
// fits.
TEST(ExampleViews, WhatAnExampleBeginsWithStays) {
  const ScratchDirectory scratch;
  constexpr int64_t kDocument = 9, kRest = 3 + 4;
  for (const int64_t begin : {0, 1, 2}) {
    write_marked_dataset(scratch / "train.h5", {{kDocument, 4}}, ExampleKind::kSummary, begin);
    const TokenDataset dataset(scratch / "train.h5");
    EXPECT_EQ(dataset.header().begin_tokens, begin);
    for (int64_t length = 4; length < 20; ++length) {
      const int64_t tokens = std::min(length + 1, kDocument + kRest);
      const int64_t head = std::max(begin, tokens - kRest);
      std::vector<int32_t> expected;
      for (int64_t p = 0; p < head; ++p) expected.push_back(marked_token(0, p));
      for (int64_t p = kDocument; std::ssize(expected) < tokens; ++p) expected.push_back(marked_token(0, p));
      const ExampleView view = view_examples(dataset, {0}, {.sequence_length = length}).front();
      EXPECT_EQ(view.token, expected) << begin << ' ' << length;
      EXPECT_EQ(view.target_count(), std::max<int64_t>(tokens - head - 3, 0)) << begin << ' ' << length;
      const SequenceReader reader(dataset, length, LossOn::kSummary);
      EXPECT_EQ(reader.cut_summaries(), begin + kRest > tokens ? 1 : 0) << begin << ' ' << length;
      EXPECT_EQ(reader.cut_documents() + reader.cut_summaries(), length + 1 < kDocument + kRest ? 1 : 0);
    }
    std::filesystem::remove(scratch / "train.h5");
  }
}

TEST(ExampleViews, AreWhatTheLoaderDeals) {
  const ScratchDirectory scratch;
  for (const ExampleKind kind : {ExampleKind::kSummary, ExampleKind::kText}) {
    auto lengths = random_lengths(40, 60, 3);
    for (MarkedLengths& each : lengths) each.document += 1;  // an example has at least two tokens
    write_marked_dataset(scratch / "train.h5", lengths, kind);
    const TokenDataset dataset(scratch / "train.h5");
    for (const int64_t length : {4, 11, 32, 64, 100}) {
      for (const LossOn loss_on : {LossOn::kSummary, LossOn::kAll}) {
        const ExampleViewOptions options{.sequence_length = length, .loss_on = loss_on};
        auto shown = rows_of(view_examples(dataset, all_examples(dataset), options));
        EXPECT_EQ(shown, dealt_documents(dataset, options, false)) << length;
        // Packing and shuffling do not change the documents.
        auto packed = dealt_documents(dataset, options, true);
        std::sort(shown.begin(), shown.end());
        std::sort(packed.begin(), packed.end());
        EXPECT_EQ(shown, packed) << length;
      }
    }
    std::filesystem::remove(scratch / "train.h5");
  }
}

TEST(ExampleViews, SayWhatIsCutAndWhatCounts) {
  const ScratchDirectory scratch;
  write_marked_dataset(scratch / "train.h5", {{100, 5}, {3, 4}, {30, 40}});
  const TokenDataset dataset(scratch / "train.h5");
  const auto view = [&](int64_t example, int64_t length) {
    return view_examples(dataset, {example}, {.sequence_length = length}).at(0);
  };
  const ExampleView cut = view(0, 36);  // keeps 37 tokens
  EXPECT_EQ(cut.example, 0);
  EXPECT_EQ(cut.document, 100);
  EXPECT_EQ(cut.separator, 3);
  EXPECT_EQ(cut.summary, 5);
  EXPECT_EQ(cut.cut_document, 71);
  EXPECT_EQ(cut.cut_summary, 0);
  ASSERT_EQ(cut.cuts.size(), 1u);
  EXPECT_EQ(cut.cuts[0].at, 29);
  EXPECT_EQ(cut.cuts[0].tokens, 71);
  EXPECT_EQ(marked_place(cut.token.at(28)), 28);
  EXPECT_EQ(marked_place(cut.token.at(29)), 100);
  EXPECT_EQ(cut.target_count(), 5);

  const ExampleView whole = view(0, 0);
  EXPECT_EQ(std::ssize(whole.token), 108);
  EXPECT_EQ(whole.cut_document, 0);
  EXPECT_EQ(whole.target_count(), 5);
  EXPECT_EQ(view(1, 36).cut_document, 0);

  const ExampleView no_room = view(2, 36);
  EXPECT_EQ(no_room.cut_document, 29);
  EXPECT_EQ(no_room.cut_summary, 7);
  EXPECT_EQ(no_room.target_count(), 33);
  // BOS and two tokens of the separator stay.
  const ExampleView nothing = view(2, 2);
  EXPECT_EQ(nothing.cut_document, 29);
  EXPECT_EQ(nothing.cut_summary, 41);
  EXPECT_EQ(nothing.target_count(), 0);
}

TEST(ExampleViews, LongTextComesInPieces) {
  const ScratchDirectory scratch;
  write_marked_dataset(scratch / "train.h5", {{5, 0}, {25, 0}}, ExampleKind::kText);
  const TokenDataset dataset(scratch / "train.h5");
  const auto views = view_examples(dataset, {1}, {.sequence_length = 10});
  ASSERT_EQ(views.size(), 3u);
  int64_t targets = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(views[i].example, 1);
    EXPECT_EQ(views[i].piece, static_cast<int64_t>(i));
    EXPECT_EQ(views[i].pieces, 3);
    EXPECT_EQ(views[i].document, std::ssize(views[i].token));
    EXPECT_EQ(views[i].separator + views[i].summary + views[i].cut_document, 0);
    EXPECT_EQ(marked_place(views[i].token.front()), static_cast<int64_t>(i) * 10);
    targets += views[i].target_count();
  }
  EXPECT_EQ(targets, 24);
  EXPECT_EQ(view_examples(dataset, {1}, {}).size(), 1u);
}

TEST(ExampleViews, ADrawTakesNoneTwice) {
  const std::vector<int64_t> five = draw_examples(30, 5, 7), nine = draw_examples(30, 9, 7);
  EXPECT_EQ(five, std::vector<int64_t>(nine.begin(), nine.begin() + 5));
  EXPECT_NE(five, draw_examples(30, 5, 8));
  EXPECT_EQ(std::set<int64_t>(nine.begin(), nine.end()).size(), 9u);
  std::vector<int64_t> all = draw_examples(3, 9, 7);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace ripstop
