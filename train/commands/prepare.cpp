#include "data/prepare/prepare.h"
#include "data/chat/chat_style.h"
#include "data/dataset/prompt_template.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "data/process/shell_word.h"
#include "model/core/number.h"
#include "train/commands/command_line.h"
#include "train/commands/commands.h"
#include "train/commands/show_examples.h"
#include "train/config/run_config.h"
#include "train/machine/machine.h"
#include "train/report/human_text.h"
#include "train/report/live_line.h"
#include "train/report/standard_streams.h"
#include "train/run/stop_signal.h"

namespace ripstop {
namespace {

/// The cores that Slurm granted; else this process's cores, at most 4, because people share login nodes.
int64_t default_threads() {
  if (const char* text = std::getenv("SLURM_CPUS_PER_TASK"))
    if (const int64_t granted = parse_whole_number(text).value_or(0); granted > 0) return granted;
  return std::clamp<int64_t>(allowed_cores(), 1, 4);
}

/// A hint on how a split without examples gets some.
std::string how_to_fill(Split split, const CorpusSource& source) {
  if (source.kind == SourceKind::kSynthetic) return "give more --examples";
  const bool xsum = source.kind == SourceKind::kXsum;
  const std::string from = xsum ? "--splits FILE assigns articles to the splits"
                           : split == Split::kTrain
                               ? "a file has them that is named train*"
                               : fmt::format("a file named {}* has them", to_string(split));
  return split == Split::kValidation && source.validation_fraction == 0
             ? from + ", or --validation-fraction 0.05 takes some of train"
             : from;
}

void print_report(std::FILE* stream, const PrepareReport& report, const std::string& output, double seconds) {
  print_to(stream, "tokenizer    {} pieces, {}, sha256 {}\n", report.vocabulary_size,
           report.tokenizer_trained ? "trained on the train split" : "as given",
           report.tokenizer_sha256.substr(0, 16));
  print_to(stream, "{:<12}{:>10}{:>13}{:>13}   {:<28}{}\n", "", "examples", "tokens", "targets",
           "document tokens med/p90/max", "summary tokens med/p90/max");
  for (int s = 0; s < kSplits; ++s) {
    const SplitReport& split = report.splits[static_cast<size_t>(s)];
    const auto lengths = [](const LengthStatistics& l) {
      return fmt::format("{} / {} / {}", l.median, l.p90, l.longest);
    };
    print_to(stream, "{:<12}{:>10}{:>13}{:>13}   {:<28}{}\n", to_string(static_cast<Split>(s)),
             split.examples, split.tokens, split.targets, lengths(split.document_tokens),
             lengths(split.summary_tokens));
  }
  // The last token of an example predicts no token, so plan and train do not count it.
  const SplitReport& train = report.splits[static_cast<size_t>(Split::kTrain)];
  if (train.examples > 0) {
    print_to(stream,
             "epoch        {} of train, if no document is cut: an example's last token predicts none\n",
             counted(train.tokens - train.examples, "token"));
  }
  const SkipCounts skipped = report.skipped();
  if (const int64_t count = skipped.total(); count > 0) {
    std::string chats;
    if (skipped.of(Skip::kNotText) + skipped.of(Skip::kNoAnswer) + skipped.of(Skip::kRefused) > 0)
      chats = fmt::format(
          ", {} with tools or other things than text, {} without an answer, {} that the chat template "
          "refuses",
          skipped.of(Skip::kNotText), skipped.of(Skip::kNoAnswer), skipped.of(Skip::kRefused));
    print_to(stream,
             "skipped      {}: {} empty or null, {}, {} not UTF-8, {} with NUL bytes, {} that the tokenizer "
             "cannot encode{}; the first: {}\n",
             counted(count, "example"), skipped.of(Skip::kEmpty),
             counted(skipped.of(Skip::kDuplicate), "duplicate"), skipped.of(Skip::kInvalidUtf8),
             skipped.of(Skip::kNul), skipped.of(Skip::kLongWord), chats, report.first_skipped);
  }
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest})
    if (report.splits[static_cast<size_t>(split)].examples == 0)
      print_to(stream, "empty        no example is {}: {}\n", to_string(split),
               how_to_fill(split, report.source));
  if (report.counts.absent_ids > 0)
    print_to(stream, "absent       {} of the split file without an article\n",
             counted(report.counts.absent_ids, "id"));
  if (report.counts.lost_links > 0)
    print_to(stream, "lost         {} in the archive to no file of it\n",
             counted(report.counts.lost_links, "link"));
  if (report.counts.unlisted > 0)
    print_to(stream, "unlisted     {} left out: in no split\n", counted(report.counts.unlisted, "article"));
  print_to(stream, "written      {} in {:.1f} s\n", output, seconds);
}

struct PrepareArguments {
  PrepareOptions options;
  std::vector<std::string> inputs;
  std::string output;
  std::string tokenizer;
  std::string splits;
  std::string source = "auto";
  std::string data;  ///< an existing data set to show
  ShowArguments show;
  std::string loss_on = "auto";
  bool read_special_tokens = false;
  // Options: the action must know which of them are given.
  std::vector<Option> of_making;   ///< options only for making a data set
  std::vector<Option> of_showing;  ///< options only for --show
  std::optional<Option> seed;      ///< --seed, for making and for showing
};

std::vector<std::string> chat_templates() {
  std::vector<std::string> names = chat_template_names();
  names.insert(names.begin(), "auto");
  return names;
}

PrepareOptions options_of(const PrepareArguments& given, Progress& progress, const StopSignal& stop) {
  PrepareOptions options = given.options;
  options.source.kind = value_of<SourceKind>(given.source).value();
  options.source.inputs.assign(given.inputs.begin(), given.inputs.end());
  options.source.splits = given.splits;
  if (given.show.seed) options.source.seed = 0;  // here --seed is for drawing examples
  options.output = given.output;
  options.tokenizer = given.tokenizer;
  if (given.read_special_tokens) options.choice.reads_special_tokens = true;
  options.prompt_template = typed_template(options.prompt_template);
  options.progress = [&](const PrepareProgress& now) {
    progress.update("prepare: " + now.doing, now.unit, now.done, now.total);
  };
  options.note = [&](const std::string& text) {
    // End the progress line: otherwise its seconds would count on below the note.
    progress.finish();
    LiveLine(stderr).print("note: " + text);
  };
  options.stop_requested = [&] { return stop.requested(); };
  return options;
}

ExitCode prepare_dataset(const PrepareArguments& given) {
  Progress progress(stderr);
  // prepare cannot resume, so a stop removes the unfinished data set.
  const StopSignal stop(StopFor::kCleanUp);
  const auto begin = std::chrono::steady_clock::now();
  try {
    const PrepareReport report = prepare(options_of(given, progress, stop));
    progress.finish();
    print_report(given.show.json ? stderr : stdout, report, given.output,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return ExitCode::kOk;
  } catch (const PrepareStopped&) {
    progress.finish();
    stop.end_process();
    return ExitCode::kBug;  // not reached: the signal that requested the stop ends the process
  }
}

std::string first_given(const std::vector<Option>& options) {
  const auto found =
      std::find_if(options.begin(), options.end(), [](const Option& option) { return option.is_given(); });
  return found == options.end() ? "" : found->name();
}

// Throws Error(kUsage) if options exclude each other or need one that is missing.
void check_arguments(const PrepareArguments& given) {
  const bool shows = given.show.count > 0;
  if (const std::string option = first_given(given.of_showing); !shows && !option.empty())
    throw Error(ExitCode::kUsage, fmt::format("{} is for --show N, which is not there", option),
                "ripstop prepare --show 3 DATA shows three examples of a data set");
  if (given.data.empty()) {
    if (shows && first_given(given.of_making).empty())
      throw Error(ExitCode::kUsage,
                  "--show needs a data set: one that is there, or --output for one to be made",
                  fmt::format("ripstop prepare --show {} DATA, where DATA was given as --output before",
                              given.show.count));
    return;
  }
  if (!shows)
    throw Error(
        ExitCode::kUsage, fmt::format("{} stands without --input or --show N", given.data),
        fmt::format("--input {0} makes a data set of it; --show 3 {0} shows three examples of it if it is "
                    "a data set",
                    shell_word(given.data)));
  if (const std::string option = first_given(given.of_making); !option.empty())
    throw Error(ExitCode::kUsage,
                fmt::format("{} is a data set to be shown, {} is for one to be made", given.data, option),
                fmt::format("leave out {}, or put --input in front of {}", option, shell_word(given.data)));
}

ExitCode make_and_show(PrepareArguments given) {
  check_arguments(given);
  given.show.split = split_name(given.show.split);
  given.show.loss_on = value_of<LossOn>(given.loss_on).value();
  // --seed decides the synthetic texts, if there are any, else which examples are drawn.
  const bool makes_texts = given.data.empty() && given.inputs.empty();
  if (given.show.count > 0 && given.seed->is_given() && !makes_texts)
    given.show.seed = given.options.source.seed;
  if (!given.data.empty()) {
    check_examples_to_show(given.data, given.show);
    show_examples(given.data, given.show);
    return ExitCode::kOk;
  }
  const ExitCode code = prepare_dataset(given);
  if (code != ExitCode::kOk || given.show.count == 0) return code;
  if (!given.show.json) print_out("\n");
  try {
    show_examples(given.output, given.show);
  } catch (const Error& error) {
    // The data set is made, so only a script, which needs the JSON, gets an error.
    if (error.code() != ExitCode::kUsage || given.show.json) throw;
    print_to(stderr, "note: no example is shown: {}; {}\n", error.what(), error.hint());
  }
  return code;
}

void add_making(Verb& verb, const std::shared_ptr<PrepareArguments>& given) {
  PrepareOptions& options = given->options;
  options.threads = default_threads();
  given->of_making = {
      verb.path("--input", given->inputs,
                "files and directories: .jsonl, .json, .txt (also with .gz), XSum's .tar.gz"),
      verb.path("--output", given->output, "the data set's directory, to be made"),
      verb.option("--source", given->source,
                  "format of the input; auto: by the input's names and first lines")
          .choices({kWords<SourceKind>.begin(), kWords<SourceKind>.end()}),
      verb.path("--tokenizer", given->tokenizer,
                "a SentencePiece .model, a tokenizer.json, or a directory that has one"),
      verb.option("--eos-token", options.choice.eos_token,
                  "the token that ends an example, by its name; default: what the tokenizer's files say"),
      verb.flag("--read-special-tokens", given->read_special_tokens,
                "names of special tokens in a text are these tokens, not text"),
      verb.option("--vocab-size", options.vocab_size, "train a tokenizer of so many pieces instead"),
      verb.option("--template", options.prompt_template,
                  "the prompt, \\n is a line feed; default '{document}\\n\\nTL;DR:', with --chat-template "
                  "'Summarize the following article in one sentence.\\n\\n{document}'"),
      verb.option(
              "--chat-template", options.chat_template,
              "makes the prompt a user's turn, the summary the assistant's; auto: the tokenizer's template")
          .choices(chat_templates()),
      verb.option("--chat-date", options.chat_date,
                  "the date in the text of llama3.1; default '26 Jul 2024'"),
      verb.path("--splits", given->splits, "xsum: JSON of ids, {train, validation, test}; may be .json.gz"),
      verb.option("--document-field", options.source.document_field, "jsonl: the field with the document"),
      verb.option("--summary-field", options.source.summary_field, "jsonl: the field with the summary"),
      verb.option("--validation-fraction", options.source.validation_fraction,
                  "share of train that becomes validation"),
      verb.option("--examples", options.source.examples, "synthetic: how many, over all splits"),
      verb.option("--threads", options.threads,
                  "default: $SLURM_CPUS_PER_TASK, or the cores allowed, at most 4")
          .show_default(),
      verb.flag("--strict", options.strict, "end with exit code 65 instead of skipping an example"),
  };
  given->seed =
      verb.option("--seed", options.source.seed,
                  "synthetic: seed of the random texts; else with --show: draws examples at random");
}

void add_show(Verb& verb, const std::shared_ptr<PrepareArguments>& given) {
  ShowArguments& show = given->show;
  verb.path("DATA", given->data, "with --show: a data set that is there, the directory that --output made");
  verb.option("--show", show.count,
              "print so many examples, of DATA or of what is made, as text with the tokens marked that count")
      .positive();
  given->of_showing = {
      verb.option("--split", show.split, "show: train, validation (val, dev) or test (eval)")
          .choices(split_words())
          .show_default(),
      verb.option("--sequence-length", show.sequence_length,
                  "show: cut as a run with this data.sequence_length does; default: nothing is cut")
          .range(2, int64_t{1} << 30),
      verb.option("--loss-on", given->loss_on, "show: what counts in the loss, as data.loss_on of a run")
          .choices({kWords<LossOn>.begin(), kWords<LossOn>.end()})
          .show_default(),
      verb.flag("--json", show.json, "show: one JSON document with ids, pieces and what counts"),
  };
}

}  // namespace

void add_prepare(CommandLine& line) {
  Verb verb = line.verb("prepare", "text to tokenizer and HDF5, offline, on a login node");
  verb.add_details(
      "A file whose name begins or ends with val, valid or dev is validation, with test or eval it is test,\n"
      "any other is train; if the name tells nothing, that of its folder may. Notes tell it of each file.\n"
      "With --show it prints examples as a run reads them: all tokens as text, those marked that count in "
      "the\n"
      "loss, and the places at which a document is cut.");
  const auto given = std::make_shared<PrepareArguments>();
  add_making(verb, given);
  add_show(verb, given);
  verb.set_example(
      "ripstop prepare --input XSUM-EMNLP18-Summary-Data-Original.tar.gz --splits "
      "XSum-TRAINING-DEV-TEST-SPLIT-90-5-5.json \\\n"
      "      --tokenizer llama/tokenizer.model --output runs/xsum-data\n"
      "  ripstop prepare --source synthetic --examples 20000 --vocab-size 512 --output data/quickstart\n"
      "  ripstop prepare --show 3 --sequence-length 512 runs/xsum-data");
  verb.set_action([given] { return make_and_show(*given); });
}

}  // namespace ripstop
