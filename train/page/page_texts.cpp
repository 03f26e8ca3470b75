#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "train/config/config_keys.h"
#include "train/page/html_text.h"
#include "train/page/page_parts.h"

namespace ripstop {
namespace {

using Runs = std::span<const RunRecord>;

constexpr size_t kMostOfDocument = 4000, kMostOfSummary = 1000;

// A document with the summaries of the runs.
struct Example {
  std::string id, document, reference;
  std::vector<const std::string*> summaries;  ///< summary by each run; null: the run has none
};

bool are_evaluated(Runs runs) {
  return std::ranges::any_of(runs, [](const RunRecord& run) { return !run.predictions.empty(); });
}

// The examples of the evaluations if there are any, else of the last validations.
std::vector<Example> examples_of(Runs runs) {
  std::vector<Example> examples;
  std::map<std::pair<std::string, std::string>, size_t> places;  // by id and reference
  const bool evaluated = are_evaluated(runs);
  const auto add = [&](size_t run, const std::string& document, const auto& text) {
    const auto [place, is_new] = places.emplace(std::pair(text.id, text.reference), examples.size());
    if (is_new) {
      if (examples.size() == RunRecord::kMostPredictions) return void(places.erase(place));
      examples.push_back({text.id, document, text.reference, std::vector<const std::string*>(runs.size())});
    }
    examples[place->second].summaries[run] = &text.summary;
  };
  for (size_t i = 0; i < runs.size(); ++i) {
    for (const Prediction& prediction : runs[i].predictions) add(i, prediction.document, prediction);
    if (!evaluated && runs[i].last_validation && runs[i].last_validation->samples)
      for (const auto& sample : *runs[i].last_validation->samples) add(i, "", sample);
  }
  return examples;
}

std::string example_html(Runs runs, const Example& example) {
  std::string out =
      fmt::format("<div class=\"example\"><p class=\"dim\"><bdi>{}</bdi></p><div class=\"columns\">",
                  html(example.id, 120));
  out += fmt::format("<div><h3>Reference</h3><p dir=\"auto\">{}</p></div>",
                     html(example.reference, kMostOfSummary));
  for (size_t i = 0; i < runs.size(); ++i)
    if (example.summaries[i])
      out += fmt::format("<div><h3>{}</h3><p dir=\"auto\">{}</p></div>", name_of(runs, i, 60),
                         html_marked(*example.summaries[i], example.reference, kMostOfSummary));
  out += "</div>";
  if (!example.document.empty())
    out += fmt::format("<details><summary>document</summary><pre dir=\"auto\">{}</pre></details>",
                       html(example.document, kMostOfDocument));
  return out + "</div>\n";
}

std::string source_of_texts(Runs runs, const std::vector<Example>& examples) {
  std::string out;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunRecord& run = runs[i];
    if (!run.predictions.empty())
      out += fmt::format("{}{}: evaluation <bdi>{}</bdi>", out.empty() ? "" : "; ", name_of(runs, i, 60),
                         html(run.predictions_from, 120));
    else if (!are_evaluated(runs) && run.last_validation && run.last_validation->samples)
      out += fmt::format("{}{}: validation of step {}", out.empty() ? "" : "; ", name_of(runs, i, 60),
                         run.last_validation->step);
    else
      continue;
    if (std::ranges::none_of(examples, [i](const Example& each) { return each.summaries[i]; }))
      out += " (other documents, not shown)";
  }
  return out;
}

// "0.3714 (0.3650 to 0.3777)".
std::string score_text(const EvaluationRecord& evaluation, size_t number) {
  if (!std::isfinite(evaluation.rouge[number])) return "-";
  std::string text = fmt::format("{:.4f}", evaluation.rouge[number]);
  if (evaluation.intervals) {
    const auto [low, high] = (*evaluation.intervals)[number];
    text += fmt::format(" <span class=\"dim\">({:.4f} to {:.4f})</span>", low, high);
  }
  return text;
}

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.1f}%", 100 * share) : "-";
}

std::string evaluation_row(Runs runs, size_t run, const EvaluationRecord& evaluation) {
  std::string out = "<tr>";
  if (runs.size() > 1) out += "<td>" + name_of(runs, run, 60) + "</td>";
  const std::string data =
      evaluation.data.empty() ? "" : fmt::format(" of <bdi>{}</bdi>", html(evaluation.data, 120));
  out += fmt::format("<td><bdi>{}</bdi></td><td>{}{}</td><td>{}</td><td>{}</td>", html(evaluation.name, 120),
                     html(evaluation.split, 20), data, evaluation.examples,
                     std::isfinite(evaluation.loss) ? fmt::format("{:.4f}", evaluation.loss) : "-");
  for (size_t i = 0; i < evaluation.rouge.size(); ++i) out += "<td>" + score_text(evaluation, i) + "</td>";
  for (const double share : {evaluation.at_limit, evaluation.empty, evaluation.repeats, evaluation.copies})
    out += "<td>" + percent(share) + "</td>";
  return out + "</tr>\n";
}

}  // namespace

std::string scores(Runs runs) {
  std::string rows;
  for (size_t i = 0; i < runs.size(); ++i)
    for (const EvaluationRecord& evaluation : runs[i].evaluations)
      rows += evaluation_row(runs, i, evaluation);
  std::string out = section_begin("scores");
  if (rows.empty())
    return out +
           "<p class=\"note\">No evaluation yet: <code>ripstop evaluate RUN</code> makes "
           "one.</p></section>\n";
  out += fmt::format(
      "<div "
      "class=\"scroll\"><table><thead><tr>{}<th>evaluation</th><th>split</th><th>examples</th><th>loss</th>"
      "<th>ROUGE-1</th><th>ROUGE-2</th><th>ROUGE-L</th><th>ended at the limit</th><th>empty</th>"
      "<th>repeat four words</th><th>copy the first sentence</th></tr></thead>{}</table></div>",
      runs.size() > 1 ? "<th>run</th>" : "", rows);
  return out +
         "<p class=\"note\">ROUGE: means of F-measures from 0 to 1, words stemmed; in brackets the 95 % "
         "interval of the "
         "mean by the bootstrap, 10,000 resamples, seed 1. To say whether two runs differ: <code>ripstop "
         "rouge --compare RUN/evaluation/NAME OTHER/evaluation/NAME</code>.</p></section>\n";
}

std::string texts(Runs runs, const PageOptions& options) {
  std::string out = section_begin("texts");
  if (!options.with_texts)
    return out + "<p class=\"note\">Documents and summaries are left out.</p></section>\n";
  const std::vector<Example> examples = examples_of(runs);
  if (examples.empty())
    return out +
           "<p class=\"note\">No summaries yet: <code>ripstop evaluate RUN</code> writes "
           "some.</p></section>\n";
  out += fmt::format(
      "<p class=\"note\">{}. <mark>Marked</mark>: words of the reference in the same order, which ROUGE-L "
      "counts.</p>\n",
      source_of_texts(runs, examples));
  for (const Example& example : examples) out += example_html(runs, example);
  return out + "</section>\n";
}

std::string config_differences(Runs runs) {
  if (runs.size() < 2) return "";
  RunTable table(runs);
  for (const ConfigKey& key : config_keys()) {
    const auto value = [&](const RunRecord& run) {
      return run.config ? html(written_value(key, *run.config)) : std::string();
    };
    const bool differs =
        std::ranges::any_of(runs, [&](const RunRecord& run) { return value(run) != value(runs[0]); });
    if (differs && key.path() != "run.directory") table.row(key.path(), value);
  }
  return section_begin("configs") +
         (table.is_empty() ? std::string("<p class=\"note\">Nothing but the directories.</p>")
                           : table.html()) +
         "</section>\n";
}

}  // namespace ripstop
