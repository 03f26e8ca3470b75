#include "data/prepare/prepare_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <tuple>

#include "data/chat/chat_style.h"
#include "data/chat/chat_template.h"
#include "data/corpus/corpus_names.h"
#include "data/dataset/prompt_template.h"
#include "data/process/shell_word.h"
#include "model/core/error.h"

namespace ripstop {
namespace {

bool names_tell_splits(const CorpusSource& source) {
  return source.kind != SourceKind::kXsum && source.kind != SourceKind::kSynthetic;
}

/// A hint how to use `file` for train although its name means another split.
std::string how_to_train_on(const std::filesystem::path& file) {
  const std::filesystem::path renamed = renamed_to_train(file);
  std::error_code error;
  // If a file that is not an input has the new name, `mv` must not overwrite it.
  if (std::filesystem::exists(std::filesystem::symlink_status(renamed, error)))
    return fmt::format("{} is there: add it to --input", shell_word(renamed.string()));
  return fmt::format("if it is for train: mv -n {} {}", shell_word(file.string()),
                     shell_word(renamed.string()));
}

}  // namespace

void check_options(const PrepareOptions& options, const std::string& prompt_template) {
  if (options.output.empty())
    throw Error(ExitCode::kUsage, "--output is required", "name a directory to be made: --output data/mine");
  if (options.tokenizer.empty() && options.vocab_size == 0) {
    throw Error(ExitCode::kUsage, "no tokenizer: give either --tokenizer FILE or --vocab-size N",
                "--vocab-size 8000 trains one on the train split");
  }
  if (!options.tokenizer.empty() && options.vocab_size != 0) {
    throw Error(ExitCode::kUsage,
                fmt::format("both --tokenizer {} and --vocab-size {}: give either of them",
                            options.tokenizer.string(), options.vocab_size),
                "leave out --vocab-size to use the tokenizer, or --tokenizer to train one");
  }
  if (options.vocab_size != 0 && (!options.choice.eos_token.empty() || options.choice.reads_special_tokens))
    throw Error(ExitCode::kUsage, "--eos-token and --read-special-tokens are for a tokenizer that is given",
                "one that --vocab-size trains ends examples with </s>");
  if (!options.chat_template.empty() && options.vocab_size != 0)
    throw Error(ExitCode::kUsage, "--chat-template is for a tokenizer that is given",
                "give --tokenizer, the directory of an Instruct model");
  if (options.chat_template.empty() && !options.chat_date.empty())
    throw Error(ExitCode::kUsage, "--chat-date is for --chat-template, which is not there",
                "--chat-template auto takes the tokenizer's own");
  // Check the templates before the tokenizer is trained, which may take minutes.
  if (!options.chat_template.empty() && options.chat_template != "auto") chat_style(options.chat_template);
  parse_template(prompt_template, !options.chat_template.empty());
  // HDF5 holds attributes of 64 KiB, with their name and type.
  for (const auto& [name, text, most] : {std::tuple("--template", prompt_template, size_t{64'000}),
                                         {"--chat-date", options.chat_date, kMostTokenNameBytes}})
    if (text.size() > most)
      fail(ExitCode::kUsage, "{} has {} bytes, a data set holds {} of it", name, text.size(), most);
  if (options.vocab_size != 0) check_vocabulary_size(options.vocab_size);
  if (options.threads < 1 || options.threads > 1024) {
    throw Error(ExitCode::kUsage, fmt::format("--threads is {}, 1 to 1024 is possible", options.threads),
                "leave it out for the cores of this job");
  }
  const double fraction = options.source.validation_fraction;
  // Written with !( ) so that NaN is refused, too.
  if (!(fraction >= 0 && fraction < 1)) {
    throw Error(ExitCode::kUsage,
                fmt::format("--validation-fraction is {}, 0 to below 1 is possible", fraction),
                "--validation-fraction 0.05 takes one in twenty of train");
  }
}

TokenizerChoice tokenizer_choice(const PrepareOptions& options) {
  TokenizerChoice choice = options.choice;
  choice.chat_template = options.chat_template;
  if (options.chat_template.empty()) return choice;
  if (options.chat_template == "auto")
    choice.chat_template = own_chat_template(read_tokenizer_files(options.tokenizer));
  choice.chat_date = options.chat_date.empty() ? kDefaultChatDate : options.chat_date;
  choice.reads_special_tokens = true;
  const std::string end(chat_style(*choice.chat_template).end_token);
  if (!end.empty() && !Tokenizer(options.tokenizer, choice).id_of(end))
    throw Error(ExitCode::kInputData,
                fmt::format("the chat template {} ends answers with '{}', which is no token of {}",
                            *choice.chat_template, end, options.tokenizer.string()),
                "--chat-template auto takes the tokenizer's own template");
  if (choice.eos_token.empty()) choice.eos_token = end;
  return choice;
}

void check_train_files(const PrepareOptions& options, const CorpusSource& source) {
  if (options.vocab_size == 0 || !names_tell_splits(source)) return;
  const auto is_train = [&](const auto& file) { return split_of_file(file, source.given) == Split::kTrain; };
  const std::vector<std::filesystem::path>& files = source.inputs;
  if (std::any_of(files.begin(), files.end(), is_train)) return;
  throw Error(
      ExitCode::kInputData,
      fmt::format("no example is for train, so no tokenizer can be learnt: by name {}",
                  describe_splits(source)),
      fmt::format("{}; names with a word such as val, dev, test or eval are not train, all others are. Else "
                  "add a train.jsonl, or give --tokenizer",
                  how_to_train_on(files.front())));
}

std::vector<std::string> notes_on(const CorpusSource& source) {
  std::vector<std::string> notes;
  if (!source.passed_over.empty()) {
    notes.push_back(fmt::format("not read: {}; --source {} reads {}",
                                describe_passed_over(source.passed_over), to_string(source.kind),
                                name_ends(source.kind)));
  }
  if (names_tell_splits(source)) std::ranges::move(notes_on_splits(source), std::back_inserter(notes));
  // For XSum's articles, only a split file tells the splits.
  if (source.kind == SourceKind::kXsum && source.splits.empty()) {
    notes.push_back(
        fmt::format("no --splits FILE: every article goes to train{}, those that XSum keeps for tests "
                    "among them",
                    source.validation_fraction > 0 ? " or validation" : ""));
  }
  const bool made = source.kind == SourceKind::kSynthetic;
  if (!made && source.seed != 0) notes.push_back("not used: --seed, which is for --source synthetic");
  if (made && source.validation_fraction > 0)
    notes.push_back("not used: --validation-fraction, as --source synthetic makes all three splits");
  if ((made || source.kind == SourceKind::kXsum || source.kind == SourceKind::kMessages) &&
      (source.document_field != "document" || source.summary_field != "summary"))
    notes.push_back("not used: --document-field and --summary-field, which are for JSON lines");
  return notes;
}

void refuse_empty_train(const CorpusSource& source, const std::string& first_fault) {
  std::string what = "no usable example in the train split to learn a tokenizer from";
  if (!first_fault.empty()) what += "; the first of them is " + first_fault;
  std::string hint = "give --tokenizer, or more text";
  if (first_fault.empty() && source.validation_fraction > 0) {
    what += fmt::format("; --validation-fraction {} may have taken all", source.validation_fraction);
    hint += ", or a smaller --validation-fraction";
  } else if (first_fault.empty() && names_tell_splits(source)) {
    what += ": by name " + describe_splits(source);
    hint += " in a file that counts as train: no word of its name is val, dev, test or eval";
  } else if (first_fault.empty() && !source.splits.empty()) {
    what += fmt::format(": {} puts no article of the input there", source.splits.string());
    hint = "give --tokenizer, or a split file that lists the input's ids";
  }
  throw Error(ExitCode::kInputData, what, hint);
}

void refuse_empty(const PrepareReport& report) {
  if (const int64_t count = report.skipped().total(); count > 0) {
    throw Error(
        ExitCode::kInputData,
        fmt::format("no usable example: {} skipped, the first is {}", count, report.first_skipped),
        "each example needs a document, and a summary unless it is running text; a conversation needs an "
        "answer");
  }
  if (report.counts.unlisted > 0) {
    throw Error(ExitCode::kInputData,
                fmt::format("no usable example: {} lists none of the input's articles ({})",
                            report.source.splits.string(), report.counts.unlisted),
                "it must list ids, as \"11\" for 11.summary; without --splits every article is train");
  }
  std::string input = report.source.inputs.empty() ? "" : report.source.inputs.front().string();
  if (report.source.inputs.size() > 1) input += fmt::format(" and {} more", report.source.inputs.size() - 1);
  throw Error(ExitCode::kInputData, fmt::format("no usable example: {} holds none", input),
              report.source.kind == SourceKind::kXsum
                  ? "no .summary file is in it: unpack it (tar xf), and give the files that have the texts"
                  : "give files with text; `ripstop prepare --help` shows an example");
}

}  // namespace ripstop
