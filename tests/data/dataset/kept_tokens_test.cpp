#include "data/dataset/kept_tokens.h"

#include <gtest/gtest.h>

#include <random>

#include "data/dataset/batch_loader.h"
#include "data/dataset/example_view.h"
#include "data/dataset/sequence_reader.h"
#include "model/core/error.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

using Turns = std::vector<MarkedTurn>;

class KeptTokensTest : public testing::Test {
 protected:
  TokenDataset write(const std::vector<Turns>& conversations, const std::string& why_only_last = "") {
    std::filesystem::remove(scratch_ / "train.h5");
    TokenDatasetWriter writer(scratch_ / "train.h5", marked_header(ExampleKind::kConversation));
    for (size_t i = 0; i < conversations.size(); ++i) {
      TokenExample example = marked_conversation(static_cast<int64_t>(i), conversations[i]);
      example.why_only_last = why_only_last;
      writer.add(example);
    }
    writer.finish();
    return TokenDataset(scratch_ / "train.h5");
  }
  /// The places of the tokens that a run reads of `example`, and of those that are targets.
  std::pair<std::vector<int64_t>, std::vector<int64_t>> read(const TokenDataset& dataset, int64_t example,
                                                             int64_t longest, LossOn loss_on) const {
    const ExampleView view =
        view_examples(dataset, {example}, {.sequence_length = longest - 1, .loss_on = loss_on}).at(0);
    std::pair<std::vector<int64_t>, std::vector<int64_t>> places;
    for (const int32_t token : view.token) places.first.push_back(marked_place(token));
    for (const TokenRange& range : view.targets)
      for (int64_t i = range.begin; i < range.end; ++i)
        places.second.push_back(marked_place(view.token.at(static_cast<size_t>(i))));
    return places;
  }
  static std::vector<int64_t> places(std::initializer_list<TokenRange> ranges) {
    std::vector<int64_t> numbers;
    for (const TokenRange& range : ranges)
      for (int64_t p = range.begin; p < range.end; ++p) numbers.push_back(p);
    return numbers;
  }
  ScratchDirectory scratch_;
};

// Head 0-1; user 2-7 (text 3-6), assistant 8-12 (targets 9-12), user 13-17 (text 14-16), assistant 18-23
// (targets 19-23), user 24-26.
const Turns kTwoAnswers = {{false, 4}, {true, 3}, {false, 3}, {true, 4}, {false, 1}};

TEST_F(KeptTokensTest, WholeTurnsGoUntilAnAnswerIsTheLast) {
  const TokenDataset dataset = write({kTwoAnswers});
  const auto all = [&](int64_t longest) { return read(dataset, 0, longest, LossOn::kAssistant); };
  EXPECT_EQ(all(27).first, places({{0, 27}}));
  EXPECT_EQ(all(27).second, places({{9, 13}, {19, 24}}));
  EXPECT_EQ(all(26).first, places({{0, 24}})) << "the last turn has no answer";
  EXPECT_EQ(all(24).second, places({{9, 13}, {19, 24}}));
  EXPECT_EQ(all(23).first, places({{0, 13}}));
  EXPECT_EQ(all(13).second, places({{9, 13}}));
  // The user's text loses its end, never the answer.
  EXPECT_EQ(all(11).first, places({{0, 5}, {7, 13}}));
  EXPECT_EQ(all(9).first, places({{0, 3}, {7, 13}}));
  EXPECT_EQ(all(9).second, places({{9, 13}}));
  EXPECT_EQ(all(8).first, places({{0, 2}}));
  EXPECT_EQ(all(8).second, places({}));
}

TEST_F(KeptTokensTest, ForTheLastAnswerTheOldestTurnsGo) {
  const TokenDataset dataset = write({kTwoAnswers});
  const auto last = [&](int64_t longest) { return read(dataset, 0, longest, LossOn::kLast); };
  EXPECT_EQ(last(27).first, places({{0, 27}}));
  EXPECT_EQ(last(27).second, places({{19, 24}}));
  EXPECT_EQ(last(26).first, places({{0, 24}}));
  EXPECT_EQ(last(23).first, places({{0, 2}, {13, 24}}));
  EXPECT_EQ(last(13).first, places({{0, 2}, {13, 24}}));
  EXPECT_EQ(last(12).first, places({{0, 2}, {13, 16}, {17, 24}}));
  EXPECT_EQ(last(10).first, places({{0, 2}, {13, 14}, {17, 24}}));
  EXPECT_EQ(last(10).second, places({{19, 24}}));
  EXPECT_EQ(last(9).second, places({}));
}

TEST_F(KeptTokensTest, CutsAreCounted) {
  const TokenDataset dataset = write({kTwoAnswers, kTwoAnswers});
  const auto reader = [&](int64_t longest) {
    return SequenceReader(dataset, longest - 1, LossOn::kAssistant);
  };
  EXPECT_EQ(reader(27).cut_turns(), 0);
  EXPECT_EQ(reader(24).cut_turns(), 2);
  EXPECT_EQ(reader(13).cut_turns(), 6);
  EXPECT_EQ(reader(13).cut_documents(), 0);
  EXPECT_EQ(reader(11).cut_documents(), 2);
  EXPECT_EQ(reader(11).without_targets(), 0);
  EXPECT_EQ(reader(8).without_targets(), 2);
  EXPECT_EQ(reader(8).cut_turns(), 10);
  const ExampleView view = view_examples(dataset, {0}, {.sequence_length = 10}).at(0);
  ASSERT_EQ(view.cuts.size(), 2u);
  EXPECT_EQ(view.cuts[0].at, 5);
  EXPECT_EQ(view.cuts[0].tokens, 2);
  EXPECT_EQ(view.cuts[0].turns, 0);
  EXPECT_EQ(view.cuts[1].tokens, 14);
  EXPECT_EQ(view.cuts[1].turns, 3);
  EXPECT_EQ(view.turns, 5);
  EXPECT_EQ(view.cut_document, 16);
  const ExampleView whole = view_examples(dataset, {0}, {}).at(0);
  EXPECT_EQ(whole.token.size(), 27u) << "nothing is cut without a length";
  EXPECT_TRUE(whole.cuts.empty());
}

TEST_F(KeptTokensTest, ATurnThatDoesNotCountHasNoTarget) {
  const TokenDataset dataset = write({{{false, 2}, {true, 3, false}, {false, 2}, {true, 3}},
                                      {{false, 2}, {true, 3}, {false, 2}, {true, 3, false}}});
  EXPECT_EQ(read(dataset, 0, 20, LossOn::kAssistant).second, places({{16, 20}}));
  EXPECT_EQ(read(dataset, 1, 20, LossOn::kAssistant).second, places({{7, 11}}));
  EXPECT_EQ(read(dataset, 1, 20, LossOn::kLast).second, places({}));
  EXPECT_EQ(SequenceReader(dataset, 19, LossOn::kLast).without_targets(), 1);
}

Turns random_turns(std::mt19937& random) {
  Turns turns;
  const auto below = [&](uint32_t bound) { return static_cast<int32_t>(random() % bound); };
  for (int32_t k = 1 + below(4); k > 0; --k) {
    if (below(8) > 0) turns.push_back({false, below(9)});
    if (below(12) == 0) turns.push_back({false, below(5)});
    turns.push_back({true, below(7), below(6) > 0});
  }
  if (below(4) == 0) turns.push_back({false, 3});
  return turns;
}

// For every length and word: what is read ascends, fits and has whole answers; targets are the answers that
// are left; nothing is left out that had room; counts are those of the plan.
TEST_F(KeptTokensTest, RandomConversationsKeepWholeAnswersAtEveryLength) {
  std::mt19937 random(5);
  std::vector<Turns> conversations;
  for (int i = 0; i < 60; ++i) conversations.push_back(random_turns(random));
  const TokenDataset dataset = write(conversations);
  for (int64_t longest = 3; longest < 75; ++longest) {
    for (const LossOn loss_on : {LossOn::kAssistant, LossOn::kLast}) {
      const SequenceReader reader(dataset, longest - 1, loss_on);
      for (int64_t i = 0; i < dataset.examples(); ++i) {
        const TokenExample whole = marked_conversation(i, conversations[static_cast<size_t>(i)]);
        const auto [tokens, targets] = read(dataset, i, longest, loss_on);
        const auto is_read = [&, &tokens = tokens](int64_t p) {
          return std::ranges::binary_search(tokens, p);
        };
        ASSERT_LE(std::ssize(tokens), longest);
        ASSERT_TRUE(std::ranges::is_sorted(tokens, std::less_equal())) << i << ' ' << longest;
        ASSERT_EQ(std::ssize(tokens), reader.rows()[static_cast<size_t>(i)] + 1);
        ASSERT_EQ(std::ssize(targets), reader.target_count({i, 0, std::ssize(tokens) - 1}));
        std::vector<int64_t> expected;
        int64_t best = 0;
        for (const TargetSpan& span : whole.spans) {
          if (span.target_end <= longest) best = span.target_end;
          const bool wanted = loss_on == LossOn::kAssistant || &span == &whole.spans.back();
          if (!wanted || !is_read(span.target_begin) || tokens.size() == 2) continue;
          for (int64_t p = span.target_begin; p < span.target_end; ++p) expected.push_back(p);
        }
        ASSERT_EQ(targets, expected) << i << ' ' << longest;
        const TargetSpan& answer = loss_on == LossOn::kLast ? whole.spans.back() : whole.spans.front();
        if (std::ssize(whole.tokens) <= longest) {
          EXPECT_EQ(tokens.size(), whole.tokens.size());
        } else if (loss_on == LossOn::kAssistant && best > 0) {
          EXPECT_EQ(tokens, places({{0, best}}));
        } else if (tokens.size() > 2) {
          EXPECT_EQ(tokens.back(), answer.target_end - 1);
          EXPECT_TRUE(is_read(0) && is_read(1)) << "the head stays";
          bool is_users = tokens.at(2) == 2;  // the first turn of all may be the assistant's
          for (size_t k = 1; k < whole.spans.size(); ++k)
            is_users |= tokens[2] == whole.spans[k - 1].target_end &&
                        whole.spans[k].cut_begin < whole.spans[k].cut_end;
          EXPECT_TRUE(is_users) << i << ' ' << longest;
        }
      }
    }
  }
}

TEST_F(KeptTokensTest, ConversationsPackLikeDocuments) {
  std::mt19937 random(6);
  std::vector<Turns> conversations;
  for (int i = 0; i < 50; ++i) conversations.push_back(random_turns(random));
  const TokenDataset dataset = write(conversations);
  const BatchLoaderOptions options{.sequence_length = 40, .global_batch_sequences = 3, .epochs = 1};
  const SequenceReader reader(dataset, 40, LossOn::kAuto);
  BatchLoader loader(dataset, options);
  int64_t examples = 0, targets = 0, planned = 0;
  while (const auto step = loader.next_step()) {
    planned += step->target_count;
    for (int64_t k = 0; k < loader.batches_per_step(); ++k) {
      const PackedBatch& batch = loader.next_batch();
      targets += batch.target_count;
      for (int64_t d = 0; d < batch.document_count(); ++d) {
        const auto begin = static_cast<size_t>(batch.document_offset[static_cast<size_t>(d)]);
        const auto end = static_cast<size_t>(batch.document_offset[static_cast<size_t>(d) + 1]);
        // Padding is documents of zeros.
        examples += marked_place(batch.token[begin]) == 0 &&
                    (batch.token[begin] > 0 || (end - begin > 1 && batch.token[begin + 1] > 0));
        for (size_t row = begin; row < end; ++row) {
          EXPECT_EQ(batch.position[row], static_cast<int32_t>(row - begin));
          EXPECT_EQ(marked_example(batch.token[row]), marked_example(batch.token[begin]));
          if (batch.target[row] >= 0) {
            EXPECT_EQ(marked_example(batch.target[row]), marked_example(batch.token[begin]));
          }
        }
      }
    }
  }
  EXPECT_EQ(targets, planned);
  int64_t expected = 0;
  for (int64_t i = 0; i < 50; ++i)
    expected += reader.target_count({i, 0, reader.rows()[static_cast<size_t>(i)]});
  EXPECT_EQ(targets, expected);
  EXPECT_EQ(examples, 50);
}

TEST_F(KeptTokensTest, WordsForNoDataSetAreRefused) {
  TokenDatasetHeader header = marked_header(ExampleKind::kSummary);
  EXPECT_EQ(resolve_loss_on(header, LossOn::kAuto), LossOn::kSummary);
  EXPECT_EQ(resolve_loss_on(header, LossOn::kAll), LossOn::kAll);
  EXPECT_EQ(loss_on_note(header, LossOn::kAll), "");
  EXPECT_EQ(resolve_loss_on(header, LossOn::kLast), LossOn::kSummary) << "of pairs beside conversations";
  header.kind = ExampleKind::kConversation;
  EXPECT_EQ(resolve_loss_on(header, LossOn::kAuto), LossOn::kAssistant);
  EXPECT_EQ(resolve_loss_on(header, LossOn::kAll), LossOn::kAssistant);
  EXPECT_NE(loss_on_note(header, LossOn::kAll), "");
  EXPECT_EQ(loss_on_note(header, LossOn::kAssistant), "");
  EXPECT_EQ(resolve_loss_on(header, LossOn::kSummary), LossOn::kAssistant);
  const TokenDataset dataset = write({kTwoAnswers}, "the template drops thoughts");
  EXPECT_EQ(resolve_loss_on(dataset.header(), LossOn::kLast), LossOn::kLast);
  require_loss_on({&dataset, 1}, LossOn::kLast);
  EXPECT_THROW(require_loss_on({&dataset, 1}, LossOn::kSummary), Error);
  expect_error([&] { resolve_loss_on(dataset.header(), LossOn::kAuto); }, ExitCode::kUsage,
               "the template drops thoughts");
}

}  // namespace
}  // namespace ripstop
