#include "train/evaluate/rouge.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "data/text/json_reader.h"
#include "data/text/text_lines.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/evaluate/bootstrap.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

constexpr const char* kOfPredictions =
    "predictions.jsonl of evaluate has both texts: jq -c '{summary: .reference}' predictions.jsonl | ripstop "
    "rouge --reference - --candidate predictions.jsonl";

constexpr const char* kMethod = "paired bootstrap of documents (Koehn 2004), percentile interval";

using Json = JsonReader::Json;

struct RougeArguments {
  std::string reference;
  std::string candidate;
  Arguments compared;
  int64_t resamples = 10000;
  uint64_t seed = 1;
  bool no_stemmer = false;
  bool json = false;
};

// Throws if a candidate has the id of another reference, because scores of files in different orders would
// mean nothing. Accepts ids that no reference has: the files may still belong together.
void require_one_order(const RougeArguments& given, const std::vector<std::string>& references,
                       const std::vector<std::string>& candidates) {
  std::unordered_map<std::string, size_t> place;
  for (size_t i = 0; i < references.size(); ++i) place.emplace(references[i], i);
  for (size_t i = 0; i < std::min(references.size(), candidates.size()); ++i) {
    if (candidates[i].empty() || candidates[i] == references[i]) continue;
    if (const auto other = place.find(candidates[i]); other != place.end())
      throw Error(ExitCode::kInputData,
                  fmt::format("id {} is text {} of {}, but text {} of {}", candidates[i], other->second + 1,
                              given.reference, i + 1, given.candidate),
                  "bring both into one order: jq -sc 'sort_by(.id)[]' FILE");
  }
}

void require_as_many(const std::string& a, size_t texts_a, const std::string& b, size_t texts_b) {
  if (texts_a == texts_b) return;
  throw Error(ExitCode::kInputData,
              fmt::format("{} has {}, {} has {}", a, counted(static_cast<int64_t>(texts_a), "text"), b,
                          counted(static_cast<int64_t>(texts_b), "text")),
              fmt::format("text i of one file is compared with text i of the other; {}", kOfPredictions));
}

ExitCode print_rouge(const RougeArguments& given) {
  const std::string &reference = given.reference, &candidate = given.candidate;
  if (reference.empty() || candidate.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("{} is required", reference.empty() ? "--reference" : "--candidate"),
                "or --compare A B, with two evaluations of one split");
  // The second reader of standard input would find it empty.
  if (reference == "-" && candidate == "-")
    throw Error(ExitCode::kUsage, "--reference and --candidate are both -, standard input can be one of them",
                "save one of them first, as in --reference references.txt");

  std::vector<std::string> reference_ids, candidate_ids;
  const std::vector<std::string> references = read_summaries(reference, &reference_ids);
  const std::vector<std::string> candidates = read_summaries(candidate, &candidate_ids);
  require_as_many(reference, references.size(), candidate, candidates.size());
  require_one_order(given, reference_ids, candidate_ids);
  RougeMean mean;
  for (size_t i = 0; i < references.size(); ++i)
    mean.add(rouge(references[i], candidates[i], !given.no_stemmer));

  if (const std::string note = mean.note(); !note.empty()) print_to(stderr, "note: {}\n", note);
  if (given.json) {
    Json document{{"examples", mean.examples()}};
    for (const auto& [name, score] : named(mean.mean()))
      document[name] = {
          {"precision", score.precision}, {"recall", score.recall}, {"fmeasure", score.fmeasure}};
    print_out("{}\n", document.dump(2));
  } else {
    print_out("{}means over {}\n", rouge_table(mean.mean()), counted(mean.examples(), "example"));
  }
  return ExitCode::kOk;
}

// The file that `path`, a word of --compare, means: `path`, or predictions.jsonl in the directory `path`.
// Refuses standard input and pipes, because the second reading would find them empty.
std::string predictions_of(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::file_status found = std::filesystem::status(path, ignored);
  if (is_directory(found)) return path + "/predictions.jsonl";
  if (path == "-" || (exists(found) && !is_regular_file(found)))
    throw Error(ExitCode::kUsage, fmt::format("--compare reads its files twice, and {} is no file", path),
                "save it first, as in predictions.jsonl");
  return path;
}

// The references of two evaluations. Throws unless both have equal references.
std::vector<std::string> common_references(const std::string& a, const std::string& b) {
  std::vector<std::string> references = read_summaries(a, nullptr, "reference");
  const std::vector<std::string> others = read_summaries(b, nullptr, "reference");
  require_as_many(a, references.size(), b, others.size());
  const auto differs = std::ranges::mismatch(references, others).in1;
  if (differs == references.end()) return references;
  throw Error(
      ExitCode::kInputData,
      fmt::format("text {} has another reference in {} than in {}", differs - references.begin() + 1, b, a),
      "compare evaluations of the same examples");
}

ExitCode print_comparison(const RougeArguments& given) {
  if (given.compared.size() != 2 || !given.reference.empty() || !given.candidate.empty())
    throw Error(
        ExitCode::kUsage, "--compare takes two evaluations, and no --reference or --candidate",
        "ripstop rouge --compare RUN/evaluation/step_00001000-test OTHER/evaluation/step_00001000-test");
  const std::string a = predictions_of(given.compared[0]), b = predictions_of(given.compared[1]);
  const std::vector<std::string> references = common_references(a, b);
  const std::vector<std::string> of_a = read_summaries(a), of_b = read_summaries(b);
  RougeMean mean_a, mean_b;
  std::vector<ScoreRow> differences;
  for (size_t i = 0; i < references.size(); ++i) {
    const RougeScores score_a = rouge(references[i], of_a.at(i), !given.no_stemmer),
                      score_b = rouge(references[i], of_b.at(i), !given.no_stemmer);
    mean_a.add(score_a);
    mean_b.add(score_b);
    const ScoreRow from = fmeasures(score_a), to = fmeasures(score_b);
    differences.push_back({to[0] - from[0], to[1] - from[1], to[2] - from[2]});
  }
  const auto intervals = bootstrap_intervals(differences, given.resamples, given.seed);
  if (const std::string note = mean_a.note(); !note.empty()) print_to(stderr, "note: {}\n", note);

  Json document{{"a", a},
                {"b", b},
                {"examples", references.size()},
                {"stemmer", !given.no_stemmer},
                {"method", kMethod},
                {"resamples", given.resamples},
                {"seed", given.seed}};
  std::string table = fmt::format("{:<8}{:>10}{:>10}{:>10}   95 % interval\n", "", "A", "B", "B - A");
  const auto scores_a = named(mean_a.mean()), scores_b = named(mean_b.mean());
  for (size_t i = 0; i < intervals.size(); ++i) {
    const auto& [name, score_a] = scores_a[i];
    const double from = score_a.fmeasure, to = scores_b[i].second.fmeasure;
    const auto [low, high] = intervals[i];
    document[name] = {{"a", from}, {"b", to}, {"difference", to - from}, {"low", low}, {"high", high}};
    table += fmt::format("{:<8}{:>10.4f}{:>10.4f}{:>+10.4f}   {:+.4f} to {:+.4f}\n", name, from, to,
                         to - from, low, high);
  }
  if (given.json)
    print_out("{}\n", text_of_json(document, 2));
  else
    print_out("{}F-measures, means over {}; A is {}, B is {}\n{}, {} resamples, seed {}\n", table,
              counted(mean_a.examples(), "example"), a, b, kMethod, given.resamples, given.seed);
  return ExitCode::kOk;
}

}  // namespace

void add_rouge(CommandLine& line) {
  Verb verb = line.verb("rouge", "ROUGE-1, ROUGE-2 and ROUGE-L of texts against references");
  verb.add_details(
      "Scores lie in 0..1. Papers print 100 times that. Words are stemmed: equal to rouge_score with "
      "use_stemmer=True; --no-stemmer compares whole words, as use_stemmer=False.");
  const auto given = std::make_shared<RougeArguments>();
  verb.path("--reference", given->reference,
            "texts that people wrote: one text a line, or JSONL with `summary`; may be gzip; - is stdin");
  verb.path("--candidate", given->candidate, "texts to judge: as many, in the same order; - is stdin");
  verb.path(
      "--compare", given->compared,
      "instead of these two: two directories of evaluate, or their predictions.jsonl; B - A with its 95 % "
      "interval by the paired bootstrap");
  verb.option("--resamples", given->resamples, "of --compare").range(1, 10'000'000).show_default();
  verb.option("--seed", given->seed, "of the draws of --compare").show_default();
  verb.flag("--no-stemmer", given->no_stemmer, "compare whole words");
  verb.flag("--json", given->json, "one JSON document");
  verb.add_details(kOfPredictions);
  verb.set_example(
      "ripstop rouge --reference references.txt --candidate summaries.jsonl\n  "
      "ripstop rouge --compare runs/a/evaluation/step_00001000-test runs/b/evaluation/step_00001000-test");
  verb.set_action(
      [given] { return given->compared.empty() ? print_rouge(*given) : print_comparison(*given); });
}

}  // namespace ripstop
