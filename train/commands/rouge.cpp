#include "train/evaluate/rouge.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "data/text/text_lines.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/report/human_text.h"
#include "train/report/standard_streams.h"

namespace ripstop {
namespace {

constexpr const char* kOfPredictions =
    "predictions.jsonl of evaluate has both texts: jq -c '{summary: .reference}' predictions.jsonl | ripstop "
    "rouge --reference - --candidate predictions.jsonl";

struct RougeArguments {
  std::string reference;
  std::string candidate;
  bool json = false;
};

// Throws if a candidate has the id of another reference: scores of two orders would mean nothing. Files whose
// ids have nothing in common may belong together.
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

ExitCode print_rouge(const RougeArguments& given) {
  const auto& [reference, candidate, json] = given;
  // The second reader of standard input would find it empty.
  if (reference == "-" && candidate == "-")
    throw Error(ExitCode::kUsage, "--reference and --candidate are both -, standard input can be one of them",
                "save one of them first, as in --reference references.txt");

  std::vector<std::string> reference_ids, candidate_ids;
  const std::vector<std::string> references = read_summaries(reference, &reference_ids);
  const std::vector<std::string> candidates = read_summaries(candidate, &candidate_ids);
  if (references.size() != candidates.size())
    throw Error(ExitCode::kInputData,
                fmt::format("{} has {}, {} has {}", reference, counted(std::ssize(references), "text"),
                            candidate, counted(std::ssize(candidates), "text")),
                fmt::format("text i of one file is compared with text i of the other; {}", kOfPredictions));
  require_one_order(given, reference_ids, candidate_ids);
  RougeMean mean;
  for (size_t i = 0; i < references.size(); ++i) mean.add(rouge(references[i], candidates[i]));

  if (const std::string note = mean.note(); !note.empty()) print_to(stderr, "note: {}\n", note);
  if (json) {
    nlohmann::ordered_json document{{"examples", mean.examples()}};
    for (const auto& [name, score] : named(mean.mean()))
      document[name] = {
          {"precision", score.precision}, {"recall", score.recall}, {"fmeasure", score.fmeasure}};
    print_out("{}\n", document.dump(2));
  } else {
    print_out("{}means over {}\n", rouge_table(mean.mean()), counted(mean.examples(), "example"));
  }
  return ExitCode::kOk;
}

}  // namespace

void add_rouge(CommandLine& line) {
  Verb verb = line.verb("rouge", "ROUGE-1, ROUGE-2 and ROUGE-L of texts against references");
  verb.add_details(
      "Scores lie in 0..1. Papers print 100 times that. Words are stemmed: equal to rouge_score with "
      "use_stemmer=True.");
  const auto given = std::make_shared<RougeArguments>();
  verb.path("--reference", given->reference,
            "texts that people wrote: one text a line, or JSONL with `summary`; may be gzip; - is stdin")
      .required();
  verb.path("--candidate", given->candidate, "texts to judge: as many, in the same order; - is stdin")
      .required();
  verb.flag("--json", given->json, "one JSON document");
  verb.add_details(kOfPredictions);
  verb.set_example("ripstop rouge --reference references.txt --candidate summaries.jsonl");
  verb.set_action([given] { return print_rouge(*given); });
}

}  // namespace ripstop
