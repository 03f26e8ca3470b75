#include "train/evaluate/scores.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "data/dataset/sequence_reader.h"
#include "data/text/json_struct.h"
#include "train/generate/write_texts.h"
#include "train/report/human_text.h"

namespace ripstop {

using Json = FieldWriter::Json;

CutCounts count_cuts(const TokenDataset& dataset, int64_t examples, LossOn loss_on, int64_t context,
                     int64_t max_new_tokens) {
  const SequenceReader reader(dataset, context, loss_on, examples);
  CutCounts cuts{.loss_documents = reader.cut_documents() + reader.cut_summaries(),
                 .loss_turns = reader.cut_turns(),
                 .loss_summaries = reader.cut_summaries()};
  if (max_new_tokens > 0)
    cuts.rouge_documents = count_cut_documents(dataset, examples, context - max_new_tokens);
  return cuts;
}

std::string cuts_text(const CutCounts& cuts, int64_t examples, int64_t context, int64_t max_new_tokens) {
  if (cuts.loss_documents + cuts.loss_turns + cuts.rouge_documents.value_or(0) == 0) return "";
  std::string text =
      cuts.loss_turns > 0 ? fmt::format("{} left out of the loss; ", counted(cuts.loss_turns, "turn")) : "";
  text += fmt::format("documents cut to fit {} tokens: loss {} of {} (document and reference", context,
                      cuts.loss_documents, examples);
  if (cuts.loss_summaries > 0)
    text += fmt::format("; {} cut, too", counted(cuts.loss_summaries, "reference"));
  text += ")";
  if (cuts.rouge_documents)
    text += fmt::format(", ROUGE {} of {} (document and {})", *cuts.rouge_documents, examples,
                        counted(max_new_tokens, "new token"));
  return text;
}

double EvaluationScores::mean_loss() const {
  return loss.target_count > 0 ? loss.mean() : std::numeric_limits<double>::quiet_NaN();
}

std::string score_predictions(std::span<const Prediction> predictions, EvaluationScores& scores) {
  std::string lines;
  for (const Prediction& prediction : predictions) {
    const RougeScores rouge_scores = rouge(prediction.reference, prediction.summary);
    const Degenerate signs = find_degenerate(prediction);
    Json line{{"example", scores.rouge.examples()}, {"id", prediction.id}};
    for (const auto& [name, score] : named(rouge_scores)) line[name] = score.fmeasure;
    line["at_limit"] = signs.at_limit;
    line["empty"] = signs.empty;
    line["repeats"] = signs.repeats;
    line["copies"] = signs.copies;
    lines += text_of_json(line) + "\n";
    scores.rouge.add(rouge_scores);
    scores.degenerate.add(signs);
  }
  return lines;
}

std::string to_json(const EvaluationScores& scores) {
  const double loss = scores.mean_loss();
  Json document{{"step", scores.step},
                {"split", scores.split},
                {"examples", scores.examples},
                {"targets", scores.loss.target_count},
                {"loss", loss},
                {"perplexity", std::exp(loss)}};
  for (const auto& [name, score] : named(scores.rouge.mean()))
    document[name] =
        scores.rouge.examples() == 0
            ? Json(nullptr)
            : Json{{"precision", score.precision}, {"recall", score.recall}, {"fmeasure", score.fmeasure}};
  const auto share = [&](int64_t count) {
    const int64_t examples = scores.rouge.examples();
    return examples > 0 ? Json(static_cast<double>(count) / static_cast<double>(examples)) : Json(nullptr);
  };
  const DegenerateCounts& signs = scores.degenerate;
  document["degenerate"] = {{"at_limit", share(signs.at_limit)},
                            {"empty", share(signs.empty)},
                            {"repeats", share(signs.repeats)},
                            {"copies", share(signs.copies)}};
  document["checkpoint"] = scores.checkpoint;
  document["split_examples"] = scores.split_examples;
  if (!scores.data_sets.empty()) {
    document["data"] = scores.data;
    document["data_sets"] = scores.data_sets;
  }
  document["loss_cut_documents"] = scores.cuts.loss_documents;
  document["loss_cut_summaries"] = scores.cuts.loss_summaries;
  document["loss_cut_turns"] = scores.cuts.loss_turns;
  document["rouge_cut_documents"] = FieldWriter::to_json(scores.cuts.rouge_documents);
  return text_of_json(document, 2) + "\n";
}

std::string to_text(const EvaluationScores& scores) {
  const double loss = scores.mean_loss();
  const std::string first =
      scores.examples < scores.split_examples ? fmt::format("the first {} of ", scores.examples) : "";
  std::string text = fmt::format("loss {:.4f}, perplexity {} over {} of {}{}\n", loss, perplexity_text(loss),
                                 counted(scores.loss.target_count, "target"), first,
                                 counted(scores.split_examples, scores.split + " example"));
  if (scores.rouge.examples() > 0)
    text += fmt::format("{}means over {}\n{}", rouge_table(scores.rouge.mean()),
                        counted(scores.rouge.examples(), "example"), to_text(scores.degenerate));
  else
    text += fmt::format("no ROUGE: {}\n", scores.no_rouge);
  return text;
}

}  // namespace ripstop
