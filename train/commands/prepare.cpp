// ripstop prepare: makes a tokenizer and HDF5 files from text, offline, on a login node.
#include "data/prepare.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include "model/core/number.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/report/human_text.h"
#include "train/report/progress.h"
#include "train/run/stop_signal.h"

namespace ripstop {
namespace {

/// The default of --threads: what Slurm granted, else the cores that this process may use. Of the latter at
/// most 4, because people share login nodes.
int64_t default_threads() {
  if (const char* text = std::getenv("SLURM_CPUS_PER_TASK"))
    if (const int64_t granted = parse_whole_number(text).value_or(0); granted > 0) return granted;
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::min(std::max(cpus, 1), 4);
}

/// Shows one progress line for each part of the work.
class PartProgress {
 public:
  void show(const PrepareProgress& now) {
    if (!line_ || now.doing != doing_) {
      finish();
      doing_ = now.doing;
      line_.emplace(stderr, "prepare: " + now.doing, now.unit, now.total);
    }
    done_ = now.done;
    line_->update(now.done);
  }
  /// Ends the part's line first: what follows the note is not the time of that part.
  void note(const std::string& text) {
    finish();
    LiveLine(stderr).print("note: " + text);
  }
  void finish() {
    if (line_) line_->finish(done_);
    line_.reset();
  }

 private:
  std::string doing_;
  std::optional<Progress> line_;
  int64_t done_ = 0;
};

/// The hint for an empty split: how to give it examples.
std::string how_to_fill(Split split, const CorpusSource& source) {
  if (source.kind == SourceKind::kSynthetic) return "give more --examples";
  const bool xsum = source.kind == SourceKind::kXsum;
  const std::string from = xsum ? "--splits FILE assigns articles to the splits"
                           : split == Split::kTrain
                               ? "a file has them whose name does not begin with val, dev or test"
                               : fmt::format("a file named {}* has them", to_string(split));
  return split == Split::kValidation ? from + ", or --validation-fraction 0.05 takes some of train" : from;
}

// The table on standard output. Its tokens are those that are stored, BOS and EOS among them. Progress and
// notes go to standard error.
void print_report(const PrepareReport& report, const std::string& output, double seconds) {
  fmt::print("tokenizer    {} pieces, {}, sha256 {}\n", report.vocabulary_size,
             report.tokenizer_trained ? "trained on the train split" : "as given",
             report.tokenizer_sha256.substr(0, 16));
  fmt::print("{:<12}{:>10}{:>13}{:>13}   {:<28}{}\n", "", "examples", "tokens", "targets",
             "document tokens med/p90/max", "summary tokens med/p90/max");
  for (int s = 0; s < kSplits; ++s) {
    const SplitReport& split = report.splits[static_cast<size_t>(s)];
    const auto lengths = [](const LengthStatistics& l) {
      return fmt::format("{} / {} / {}", l.median, l.p90, l.longest);
    };
    fmt::print("{:<12}{:>10}{:>13}{:>13}   {:<28}{}\n", to_string(static_cast<Split>(s)), split.examples,
               split.tokens, split.targets, lengths(split.document_tokens), lengths(split.summary_tokens));
  }
  // plan and train count so: the last token of an example predicts none.
  const SplitReport& train = report.splits[static_cast<size_t>(Split::kTrain)];
  if (train.examples > 0) {
    fmt::print("epoch        {} of train, if no document is cut: an example's last token predicts none\n",
               counted(train.tokens - train.examples, "token"));
  }
  if (report.skipped() > 0) {
    SplitReport sum;
    for (const SplitReport& split : report.splits) {
      sum.empty += split.empty, sum.duplicates += split.duplicates;
      sum.invalid_utf8 += split.invalid_utf8, sum.with_nul += split.with_nul;
    }
    fmt::print("skipped      {}: {} empty or null, {}, {} not UTF-8, {} with NUL bytes; the first: {}\n",
               counted(report.skipped(), "example"), sum.empty, counted(sum.duplicates, "duplicate"),
               sum.invalid_utf8, sum.with_nul, report.first_skipped);
  }
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
    if (report.splits[static_cast<size_t>(split)].examples == 0)
      fmt::print("empty        no example is {}: {}\n", to_string(split), how_to_fill(split, report.source));
  if (report.counts.absent_ids > 0)
    fmt::print("absent       {} of the split file without an article\n",
               counted(report.counts.absent_ids, "id"));
  if (report.counts.unlisted > 0)
    fmt::print("unlisted     {} left out: in no split\n", counted(report.counts.unlisted, "article"));
  fmt::print("written      {} in {:.1f} s\n", output, seconds);
}

struct PrepareArguments {
  PrepareOptions options;
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer;
  std::string splits;
  std::string source = "auto";
};

const std::map<std::string, SourceKind> kSources = {{"auto", SourceKind::kAuto},
                                                    {"xsum", SourceKind::kXsum},
                                                    {"jsonl", SourceKind::kJsonl},
                                                    {"text", SourceKind::kText},
                                                    {"synthetic", SourceKind::kSynthetic}};

// CLI11 knows texts and numbers. This turns them into paths, enums and functions.
PrepareOptions options_of(const PrepareArguments& given, PartProgress& line, const StopSignal& stop) {
  PrepareOptions options = given.options;
  options.source.kind = kSources.at(given.source);
  options.source.inputs.assign(given.inputs.begin(), given.inputs.end());
  options.source.splits = given.splits;
  options.output = given.output;
  options.tokenizer = given.tokenizer;
  options.progress = [&](const PrepareProgress& now) { line.show(now); };
  options.note = [&](const std::string& text) { line.note(text); };
  options.stop_requested = [&] { return stop.requested(); };
  return options;
}

ExitCode prepare_dataset(const PrepareArguments& given) {
  PartProgress line;
  // A stop removes the unfinished data set. Nothing can be resumed here, so there is no checkpoint to write.
  const StopSignal stop(StopFor::kCleanUp);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const PrepareReport report = prepare(options_of(given, line, stop));
    line.finish();
    print_report(report, given.output,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return ExitCode::kOk;
  } catch (const PrepareStopped&) {
    line.finish();
    stop.end_process();
    return ExitCode::kBug;  // not reached: only a signal requests a stop
  } catch (...) {
    // End the live line first. Else the error would follow on the same line.
    line.finish();
    throw;
  }
}

}  // namespace

void add_prepare(CommandLine& line) {
  Verb verb = line.verb("prepare", "text to tokenizer and HDF5, offline, on a login node");
  verb.add_details(
      "A file whose name begins with val or dev is validation, with test it is test, any other is train.");
  const auto given = std::make_shared<PrepareArguments>();
  PrepareOptions& options = given->options;
  options.threads = default_threads();
  verb.option("--input", given->inputs,
              "files and directories: .jsonl, .json, .txt (also with .gz), XSum's .tar.gz");
  verb.option("--output", given->output, "the data set's directory, to be made").required();
  verb.option("--source", given->source, "format of the input; auto: decided by the input's names")
      .choices({"auto", "xsum", "jsonl", "text", "synthetic"});
  verb.option("--tokenizer", given->tokenizer,
              "a SentencePiece .model, or a directory that has a tokenizer.model");
  verb.option("--vocab-size", options.vocab_size, "train a tokenizer of so many pieces instead");
  verb.option("--template", options.prompt_template, "the prompt; default '{document}\\n\\nTL;DR:'");
  verb.option("--splits", given->splits, "xsum: JSON of ids, {train, validation, test}; may be .json.gz");
  verb.option("--document-field", options.source.document_field, "jsonl: the field with the document");
  verb.option("--summary-field", options.source.summary_field, "jsonl: the field with the summary");
  verb.option("--validation-fraction", options.source.validation_fraction,
              "share of train that becomes validation");
  verb.option("--examples", options.source.examples, "synthetic: how many, over all splits");
  verb.option("--seed", options.source.seed, "synthetic: seed of the random texts");
  verb.option("--threads", options.threads, "default: $SLURM_CPUS_PER_TASK, or the cores allowed, at most 4")
      .show_default();
  verb.flag("--strict", options.strict, "end with exit code 65 instead of skipping an example");
  verb.set_example(
      "ripstop prepare --input XSUM-EMNLP18-Summary-Data-Original.tar.gz --splits "
      "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json \\\n"
      "      --tokenizer llama/tokenizer.model --output runs/xsum-data\n"
      "  ripstop prepare --source synthetic --examples 20000 --vocab-size 512 --output data/quickstart");
  verb.set_action([given] { return prepare_dataset(*given); });
}

}  // namespace ripstop
