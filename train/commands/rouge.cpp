// ripstop rouge: how much of the reference texts the candidate texts repeat.
#include "train/evaluate/rouge.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "data/text_lines.h"
#include "train/commands/commands.h"
#include "train/report/human_text.h"

namespace ripstop {

ExitCode run_rouge(CLI::App& app, const Arguments& arguments) {
  std::string reference, candidate;
  bool json = false;
  app.add_option("--reference", reference,
                 "what people wrote: one text a line, or JSONL with `summary`; - is stdin")
      ->required();
  app.add_option("--candidate", candidate, "what is judged: as many texts, in the same order; - is stdin")
      ->required();
  app.add_flag("--json", json, "one JSON document");
  app.description(
      "ROUGE-1, ROUGE-2 and ROUGE-L of texts against references, 0..1 (papers print 100 times that)");
  set_example(app, "ripstop rouge --reference test.jsonl --candidate predictions.jsonl");
  parse(app, arguments);
  if (reference == "-" && candidate == "-")
    throw Error(ExitCode::kUsage,
                "--reference and --candidate are both -, standard input can be one of them");

  const std::vector<std::string> references = read_summaries(reference);
  const std::vector<std::string> candidates = read_summaries(candidate);
  if (references.size() != candidates.size())
    throw Error(
        ExitCode::kInputData,
        fmt::format("{} has {} texts, {} has {}", reference, references.size(), candidate, candidates.size()),
        "text i of one file is compared with text i of the other");
  RougeMean mean;
  for (size_t i = 0; i < references.size(); ++i) mean.add(rouge(references[i], candidates[i]));

  if (json) {
    nlohmann::ordered_json document{{"examples", mean.examples()}};
    for (const auto& [name, score] : named(mean.mean()))
      document[name] = {
          {"precision", score.precision}, {"recall", score.recall}, {"fmeasure", score.fmeasure}};
    fmt::print("{}\n", document.dump(2));
  } else {
    fmt::print("{}means over {}\n", rouge_table(mean.mean()), counted(mean.examples(), "example"));
  }
  return ExitCode::kOk;
}

}  // namespace ripstop
