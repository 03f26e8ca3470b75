#include "train/evaluate/scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "data/dataset/token_dataset_writer.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_dataset.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

using nlohmann::json;

EvaluationScores scores_of(double mean_loss) {
  return {.step = 60,
          .checkpoint = "runs/a/checkpoints/step_00000060",
          .split = "test",
          .examples = 98,
          .split_examples = 98,
          .loss = {.loss = 4 * mean_loss, .target_count = 4, .stop_requests = 0},
          .no_rouge = "there are no texts"};
}

TEST(EvaluationScores, EveryNumberIsOverTheSameExamples) {
  EvaluationScores scores = scores_of(2);
  for (int i = 0; i < 98; ++i) scores.rouge.add(rouge("a b", "a b"));
  EXPECT_EQ(json::parse(to_json(scores)).at("examples"), 98);
  EXPECT_EQ(to_text(scores).find("loss 2.0000, perplexity 7.389 over 4 targets of 98 test examples\n"), 0u)
      << to_text(scores);
  EXPECT_HAS(to_text(scores), "means over 98 examples\n");

  scores.examples = 1;
  scores.rouge = {};
  scores.loss = {.loss = 2, .target_count = 1, .stop_requests = 0};
  scores.rouge.add(rouge("a b", "a b"));
  const json limited = json::parse(to_json(scores));
  EXPECT_EQ(limited.at("examples"), 1);
  EXPECT_EQ(limited.at("split_examples"), 98);
  EXPECT_EQ(limited.at("targets"), 1);
  EXPECT_EQ(limited.at("rouge1").at("recall"), 1.0);
  EXPECT_HAS(to_text(scores), "over 1 target of the first 1 of 98 test examples\n");
  EXPECT_HAS(to_text(scores), "means over 1 example\n");
}

TEST(EvaluationScores, AHugePerplexityIsShortAndJsonStaysValid) {
  const std::string huge = to_text(scores_of(300));
  EXPECT_HAS(huge, "loss 300.0000, perplexity 1.9e+130 over");
  EXPECT_EQ(json::parse(to_json(scores_of(300))).at("perplexity"), std::exp(300.0));
  const json infinite = json::parse(to_json(scores_of(1000)));
  EXPECT_EQ(infinite.at("loss"), 1000);
  EXPECT_TRUE(infinite.at("perplexity").is_null());
  EXPECT_HAS(to_text(scores_of(1000)), "perplexity inf over");
  EXPECT_TRUE(json::parse(to_json(scores_of(std::nan("")))).at("loss").is_null());
}

TEST(EvaluationScores, NothingIsNotZero) {
  EvaluationScores scores = scores_of(0);
  scores.loss = {};
  const json nothing = json::parse(to_json(scores));
  for (const char* key : {"loss", "perplexity", "rouge1", "rouge2", "rougeL", "rouge_cut_documents"})
    EXPECT_TRUE(nothing.at(key).is_null()) << key;
  for (const auto& [key, share] : nothing.at("degenerate").items()) EXPECT_TRUE(share.is_null()) << key;
  EXPECT_HAS(to_text(scores), "no ROUGE: there are no texts\n");
}

TEST(EvaluationScores, EachPredictionHasItsScores) {
  EvaluationScores scores = scores_of(2);
  const std::vector<Prediction> predictions = {
      {.id = "7", .summary = "a b", .reference = "a b", .document = "x", .at_limit = true},
      {.id = "8", .summary = "", .reference = "a b", .document = "x", .at_limit = false}};
  const std::string lines = score_predictions(predictions, scores);
  EXPECT_EQ(lines,
            R"({"example":0,"id":"7","rouge1":1.0,"rouge2":1.0,"rougeL":1.0,"at_limit":true,"empty":false,)"
            R"("repeats":false,"copies":false})"
            "\n"
            R"({"example":1,"id":"8","rouge1":0.0,"rouge2":0.0,"rougeL":0.0,"at_limit":false,"empty":true,)"
            R"("repeats":false,"copies":false})"
            "\n");
  const json document = json::parse(to_json(scores));
  EXPECT_EQ(document.at("rouge1").at("fmeasure"), 0.5);
  EXPECT_EQ(document.at("degenerate"),
            json::parse(R"({"at_limit":0.5,"empty":0.5,"repeats":0.0,"copies":0.0})"));
  EXPECT_HAS(to_text(scores),
             "summaries that ended at max_new_tokens: 1; empty: 1; with four words twice: 0");
}

// An example has BOS, a document, a separator of one token, a summary of two tokens, and EOS.
TEST(CutCounts, AreThoseOfTheFirstExamples) {
  const ScratchDirectory scratch;
  {
    TokenDatasetWriter writer(scratch / "test.h5", marked_header(ExampleKind::kSummary));
    for (const int32_t document : {2, 4, 6, 30}) {
      std::vector<int32_t> tokens(static_cast<size_t>(1 + document), 1);
      tokens.insert(tokens.end(), {90, 20, 21, 2});
      writer.add({tokens, {{2 + document, 5 + document, 1, 1 + document}}});
    }
    writer.finish();
  }
  const TokenDataset dataset(scratch / "test.h5");
  // Rows are tokens - 1: 6, 8, 10, 34. Prompts have 4, 6, 8, 32 tokens.
  CutCounts cuts = count_cuts(dataset, 4, LossOn::kSummary, 8, 3);
  EXPECT_EQ(cuts.loss_documents, 2);
  EXPECT_EQ(cuts.loss_summaries, 0);
  EXPECT_EQ(cuts.rouge_documents, 3);
  EXPECT_EQ(
      cuts_text(cuts, 4, 8, 3),
      "documents cut to fit 8 tokens: loss 2 of 4 (document and reference), ROUGE 3 of 4 (document and 3 "
      "new tokens)");
  cuts = count_cuts(dataset, 3, LossOn::kSummary, 3, 0);
  EXPECT_EQ(cuts.loss_documents, 3);
  EXPECT_EQ(cuts.loss_summaries, 3);
  EXPECT_FALSE(cuts.rouge_documents);
  EXPECT_EQ(cuts_text(cuts, 3, 3, 0),
            "documents cut to fit 3 tokens: loss 3 of 3 (document and reference; 3 references cut, too)");
  EXPECT_EQ(cuts_text(count_cuts(dataset, 1, LossOn::kSummary, 8, 1), 1, 8, 1), "");
}

}  // namespace
}  // namespace ripstop
