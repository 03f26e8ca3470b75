#include "data/prepare/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "data/dataset/prompt_template.h"
#include "data/dataset/token_dataset.h"
#include "data/prepare/encode_pool.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/compressed_files.h"
#include "tests/data/prepare_fixture.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

TEST_F(PrepareTest, WritesWhatTheContractNames) {
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.splits[0].examples, 2);
  EXPECT_EQ(report.skipped().total(), 0);
  const Tokenizer tokenizer(scratch_ / "out");
  EXPECT_EQ(tokenizer.model(), small_model());
  const TokenDataset train(scratch_ / "out/train.h5"), validation(scratch_ / "out/validation.h5"),
      test(scratch_ / "out/test.h5");
  EXPECT_EQ(train.examples(), 2);
  EXPECT_EQ(train.header().tokenizer_sha256, tokenizer.sha256());
  EXPECT_EQ(train.header().separator, "\n\nTL;DR:");
  EXPECT_FALSE(train.header().with_text);
  EXPECT_EQ(train.content_hash(), report.splits[0].content_hash);
  const std::vector<int32_t> ids = tokens_of(train, 0);
  EXPECT_EQ(tokenizer.decode(ids), "The harbour opened on Monday.\n\nTL;DR: The harbour opened.");
  EXPECT_EQ(ids.front(), tokenizer.begin().front());
  EXPECT_EQ(ids.back(), tokenizer.eos());
  const std::vector<int32_t> document(ids.begin(), ids.begin() + train.separator_begin(0));
  EXPECT_EQ(tokenizer.decode(document), "The harbour opened on Monday.");
  const std::vector<int32_t> summary(ids.begin() + train.target_begin(0), ids.end());
  EXPECT_EQ(tokenizer.decode(summary), "The harbour opened.");
  const auto text = validation.text(0, 1).at(0);
  EXPECT_EQ(text.id, "v");
  EXPECT_EQ(text.document, "Old — bridge\n\nnear.");
  EXPECT_EQ(text.summary, "A bridge.");
  EXPECT_THROW(train.text(0, 1), Error);
  const auto json = nlohmann::json::parse(read_bytes(scratch_ / "out/prepare.json"));
  EXPECT_EQ(json["splits"]["train"]["examples"], 2);
  EXPECT_EQ(json["tokenizer"]["sha256"], tokenizer.sha256());
  EXPECT_EQ(json["files"]["test.h5"]["content_hash"], test.content_hash());
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_ / "out"))
    files += entry.is_regular_file();
  EXPECT_EQ(files, 5);
}

TEST_F(PrepareTest, NumbersOfThreadsAndPlacesOfOutputDoNotMatter) {
  options_.source = {};
  options_.source.kind = SourceKind::kSynthetic;
  options_.source.examples = 3000;
  options_.tokenizer.clear();
  options_.vocab_size = 512;
  for (const int64_t threads : {1, 2, 5}) {
    options_.threads = threads;
    options_.output = scratch_ / fmt::format("out{}", threads);
    prepare(options_);
  }
  for (const char* file : {"tokenizer.model", "train.h5", "validation.h5", "test.h5", "prepare.json"}) {
    const std::string one = read_bytes(scratch_ / "out1" / file);
    EXPECT_EQ(one, read_bytes(scratch_ / "out2" / file)) << file;
    EXPECT_EQ(one, read_bytes(scratch_ / "out5" / file)) << file;
  }
}

TEST_F(PrepareTest, WhatCannotBeUsedIsCountedAndSkipped) {
  write_bytes(scratch_ / "c/train.jsonl",
              "{\"document\": \"d one\", \"summary\": \"s\"}\n"
              "{\"document\": \"d one\", \"summary\": \"s\"}\n"
              "{\"document\": \"d one\", \"summary\": \"other\"}\n"
              "{\"document\": \"d on\", \"summary\": \"es\"}\n"  // the same letters, another pair
              "{\"document\": \" \\n\\u00a0\", \"summary\": \"s\"}\n"
              "{\"document\": \"d\", \"summary\": \"\"}\n"
              "{\"document\": \"bad \xff\", \"summary\": \"s\"}\n"
              "{\"document\": \"nul \\u0000\", \"summary\": \"s\"}\n"
              "{\"document\": \"bell \\u0007\", \"summary\": \"s\"}\n");
  write_bytes(scratch_ / "c/test.jsonl",
              "{\"document\": \"d one\", \"summary\": \"s\"}\n{\"document\": \"t\", \"summary\": \"s\"}\n");
  const PrepareReport report = prepare(options_);
  // prepare reads test.jsonl before train.jsonl and keeps the first of equal examples: "d one" of test.
  EXPECT_EQ(report.splits[2].examples, 2);
  EXPECT_EQ(report.splits[0].examples, 3);
  EXPECT_EQ(report.splits[0].skipped.of(Skip::kDuplicate), 2);
  EXPECT_EQ(report.splits[0].skipped.of(Skip::kEmpty), 2);
  EXPECT_EQ(report.splits[0].skipped.of(Skip::kInvalidUtf8), 1);
  EXPECT_EQ(report.splits[0].skipped.of(Skip::kNul), 1);
  EXPECT_EQ(report.splits[0].control_characters, 1);
  EXPECT_EQ(report.skipped().total(), 6);
  EXPECT_HAS(report.first_skipped, "train.jsonl:1: ");
  options_.output = scratch_ / "strict";
  options_.strict = true;
  expect_refused(ExitCode::kInputData, "train.jsonl:1: ");
}

TEST(EncodePool, CountsBothCopiesOfAConversation) {
  int64_t taken = 0;
  const auto nothing = [](EncodedExample&) {};
  EncodePool pool(1, nothing, [&](EncodedExample&) { ++taken; });
  CorpusExample example;
  example.document = std::string(600 << 10, 'a');
  example.conversation = {{Role::kUser, example.document}};
  for (int i = 0; i < 2; ++i) pool.add(CorpusExample(example));
  EXPECT_EQ(taken, 1) << "a batch has 1 MiB, so the second has to wait for the only thread";
}

TEST_F(PrepareTest, AWordOfOverAMebibyteIsSkippedAndCounted) {
  const std::string word((1 << 20) + 1, 'q');
  std::string words;
  while (words.size() < 3 << 20) words += "The harbour opened on Monday. ";
  write_bytes(scratch_ / "c/train.jsonl",
              "{\"document\": \"" + word + "\", \"summary\": \"s\"}\n{\"document\": \"" + words +
                  "\", \"summary\": \"s\"}\n{\"document\": \"d\", \"summary\": \"a " + word + "\"}\n");
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.splits[0].examples, 1);
  EXPECT_EQ(report.splits[0].skipped.of(Skip::kLongWord), 2);
  EXPECT_EQ(report.skipped().total(), 2);
  EXPECT_HAS(report.first_skipped, "train.jsonl:1: the tokenizer cannot encode it: a word of over 1 MiB");
  EXPECT_EQ(Tokenizer(scratch_ / "out").decode(tokens_of(TokenDataset(scratch_ / "out/train.h5"), 0)),
            words + "\n\nTL;DR: s");
}

TEST_F(PrepareTest, ANullIsSkippedAsAnEmptyTextIs) {
  const std::string lines = read_bytes(scratch_ / "c/train.jsonl");
  write_bytes(scratch_ / "c/train.jsonl", lines +
                                              "{\"document\": null, \"summary\": \"s\"}\n"
                                              "{\"document\": \"d\", \"summary\": null}\n");
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.splits[0].examples, 2);
  EXPECT_EQ(report.splits[0].skipped.of(Skip::kEmpty), 2);
  EXPECT_HAS(report.first_skipped, "train.jsonl:3: the document is empty or null");
  options_.output = scratch_ / "strict";
  options_.strict = true;
  expect_refused(ExitCode::kInputData, "train.jsonl:3: the document is empty or null");
}

TEST_F(PrepareTest, NothingToLearnATokenizerFromIsSaidWithTheFirstReason) {
  write_bytes(scratch_ / "c/train.jsonl", "{\"document\": \"d\", \"summary\": \" \"}\n");
  options_.tokenizer.clear();
  options_.vocab_size = 400;
  expect_refused(ExitCode::kInputData, "train.jsonl:1: the summary is empty or null");
}

TEST_F(PrepareTest, TextIsKeptWholeWithoutATarget) {
  write_bytes(scratch_ / "t/train.txt", "The harbour opened.\nThe market closed.\n");
  options_.source.inputs = {scratch_ / "t"};
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.source.kind, SourceKind::kText);
  const TokenDataset train(scratch_ / "out/train.h5");
  EXPECT_EQ(train.header().kind, ExampleKind::kText);
  EXPECT_EQ(train.target_begin(0), 1);
  EXPECT_EQ(train.separator_begin(0), 1) << "nothing is cut";
  EXPECT_EQ(Tokenizer(scratch_ / "out").decode(tokens_of(train, 0)),
            "The harbour opened.\nThe market closed.\n");
}

TEST_F(PrepareTest, EveryFormOfInputGivesTheSameTokens) {
  write_gzip(scratch_ / "z/train.jsonl.gz", read_bytes(scratch_ / "c/train.jsonl"));
  prepare(options_);
  options_.source.inputs = {scratch_ / "z"};
  options_.output = scratch_ / "out2";
  prepare(options_);
  // Names, directories and compression of the input do not change the content.
  EXPECT_EQ(TokenDataset(scratch_ / "out/train.h5").content_hash(),
            TokenDataset(scratch_ / "out2/train.h5").content_hash());
  EXPECT_EQ(TokenDataset(scratch_ / "out2/test.h5").examples(), 0);
}

TEST_F(PrepareTest, OptionsThatCannotWorkAreRefused) {
  const PrepareOptions good = options_;
  options_.vocab_size = 500;
  expect_refused(ExitCode::kUsage, "--tokenizer");
  options_ = good;
  options_.tokenizer.clear();
  expect_refused(ExitCode::kUsage, "--vocab-size");
  options_.vocab_size = 20;
  expect_refused(ExitCode::kUsage, "20 pieces");
  options_.vocab_size = 30000;
  expect_refused(ExitCode::kUsage, "30000 pieces");
  options_ = good;
  options_.output.clear();
  expect_refused(ExitCode::kUsage, "--output");
  options_ = good;
  options_.threads = 0;
  expect_refused(ExitCode::kUsage, "--threads");
  options_ = good;
  options_.source.validation_fraction = 1.5;
  expect_refused(ExitCode::kUsage, "--validation-fraction");
  options_.source.validation_fraction = std::nan("");
  expect_refused(ExitCode::kUsage, "--validation-fraction");
  options_ = good;
  options_.prompt_template = "no place for it";
  expect_refused(ExitCode::kUsage, "{document}");
  options_ = good;
  options_.source.inputs.clear();
  expect_refused(ExitCode::kUsage, "no input");
  options_ = good;
  options_.source.inputs = {scratch_ / "absent"};
  expect_refused(ExitCode::kInputData, "no such file");
}

TEST_F(PrepareTest, BadTokenizersAndCorporaLeaveNothing) {
  const PrepareOptions good = options_;
  options_.tokenizer = scratch_ / "absent.model";
  expect_refused(ExitCode::kInputData, "absent.model");
  write_bytes(scratch_ / "half.model", small_model().substr(0, 2000));
  options_.tokenizer = scratch_ / "half.model";
  expect_refused(ExitCode::kInputData, "half.model");
  options_ = good;
  const std::string lines = read_bytes(scratch_ / "c/train.jsonl");
  write_bytes(scratch_ / "c/train.jsonl", lines + "{\"document\": 1}\n");
  expect_refused(ExitCode::kInputData, "train.jsonl:3");
  options_.tokenizer.clear();
  options_.vocab_size = 400;
  expect_refused(ExitCode::kInputData, "train.jsonl:3");
  options_ = good;
  std::filesystem::remove_all(scratch_ / "c");
  write_bytes(scratch_ / "c/train.jsonl", "");
  expect_refused(ExitCode::kInputData, "no usable example");
  write_bytes(scratch_ / "c/train.jsonl", "{\"document\": \"\", \"summary\": \"s\"}\n");
  expect_refused(ExitCode::kInputData, "no usable example");
}

// Training a tokenizer takes minutes, so mistakes in the options must show before.
TEST_F(PrepareTest, MistakesAreKnownBeforeTheTokenizerIsLearnt) {
  const PrepareOptions good = options_;
  const auto slow = [&] {
    options_ = good;
    options_.source = {};
    options_.source.kind = SourceKind::kSynthetic;
    options_.source.examples = 5'000'000;
    options_.tokenizer.clear();
    options_.vocab_size = 8000;
    // stop_requested is called for every example: it shows that none was read.
    options_.stop_requested = [] {
      ADD_FAILURE() << "began to read";
      return true;
    };
  };
  slow();
  options_.prompt_template = "no place for it";
  expect_refused(ExitCode::kUsage, "{document}");
  options_.prompt_template = "{document} ";
  expect_refused(ExitCode::kUsage, "not end in a space");
  options_.prompt_template = "{document}" + std::string(64'000, ':');
  expect_refused(ExitCode::kUsage, "--template has 64010 bytes, a data set holds 64000");
  options_ = good;
  options_.output = scratch_ / "long";
  options_.prompt_template = "{document}" + std::string(63'990, ':');
  EXPECT_EQ(prepare(options_).splits[0].examples, 2);
  slow();
  options_.vocab_size = 2'000'000;
  expect_refused(ExitCode::kUsage, "2000000 pieces");
  options_.vocab_size = -5;
  expect_refused(ExitCode::kUsage, "-5 pieces");
  slow();
  write_bytes(scratch_ / "there/precious", "x");
  options_.output = scratch_ / "there";
  expect_refused(ExitCode::kUsage, "exists already");
  options_.output = scratch_ / "tokenizer.model/below/out";
  expect_refused(ExitCode::kStorage, "cannot make");
  slow();
  options_.source.splits = scratch_ / "splits.json";
  expect_refused(ExitCode::kUsage, "--splits");
  slow();
  options_.source = good.source;
  options_.source.inputs = {scratch_ / "c/test.jsonl", scratch_ / "c/validation.jsonl"};
  expect_refused(ExitCode::kInputData, "by name test.jsonl counts as test, validation.jsonl as validation");
}

TEST_F(PrepareTest, ATrainSplitWithoutExamplesSaysWhyAndHowToFillIt) {
  options_.tokenizer.clear();
  options_.vocab_size = 400;
  std::filesystem::remove(scratch_ / "c/train.jsonl");
  expect_refused(ExitCode::kInputData, "by name test.jsonl counts as test, validation.jsonl as validation");
  EXPECT_EQ(refused_hint(),
            "if it is for train: mv -n " + (scratch_ / "c/test.jsonl").string() + " " +
                (scratch_ / "c/train.jsonl").string() +
                "; names with a word such as val, dev, test or eval are not train, all others are. Else "
                "add a train.jsonl, or give --tokenizer");
  // A train file that was not given lies beside it: the rename would overwrite it.
  write_bytes(scratch_ / "my c/test.jsonl", read_bytes(scratch_ / "c/test.jsonl"));
  write_bytes(scratch_ / "my c/train.jsonl", "{\"document\": \"one\", \"summary\": \"s\"}\n");
  const CorpusSource given = options_.source;
  options_.source.inputs = {scratch_ / "my c/test.jsonl"};
  EXPECT_EQ(
      refused_hint().find("'" + (scratch_ / "my c/train.jsonl").string() + "' is there: add it to --input; "),
      0u)
      << refused_hint();
  options_.source = given;
  // The file for train is empty.
  write_bytes(scratch_ / "c/train.jsonl", "\n");
  expect_refused(ExitCode::kInputData,
                 "by name test.jsonl counts as test, train.jsonl as train, validation.jsonl as validation");
  EXPECT_HAS(refused_hint(), "no word of its name is val, dev, test or eval");
  write_bytes(scratch_ / "c/train.jsonl", "{\"document\": \"one\", \"summary\": \"s\"}\n");
  options_.source.validation_fraction = 0.9999999999;
  expect_refused(ExitCode::kInputData, "--validation-fraction 0.9999999999 may have taken all");
  EXPECT_HAS(refused_hint(), "a smaller --validation-fraction");
}

TEST_F(PrepareTest, ADataSetWithoutExamplesSaysWhatTheInputHolds) {
  write_bytes(scratch_ / "c/train.jsonl", "");
  options_.source.inputs = {scratch_ / "c/train.jsonl"};
  expect_refused(ExitCode::kInputData, "c/train.jsonl holds none");
  write_bytes(scratch_ / "x/11.summary",
              "[SN]URL[SN]\nu\n[SN]TITLE[SN]\nt\n[SN]FIRST-SENTENCE[SN]\ns\n[SN]RESTBODY[SN]\nd\n");
  write_bytes(scratch_ / "ids.json", "{\"train\": [\"22\"]}");
  options_.source.inputs = {scratch_ / "x"};
  options_.source.splits = scratch_ / "ids.json";
  expect_refused(ExitCode::kInputData, "ids.json lists none of the input's articles (1)");
  options_.tokenizer.clear();
  options_.vocab_size = 400;
  expect_refused(ExitCode::kInputData, "ids.json puts no article of the input there");
}

TEST_F(PrepareTest, FilesAndOptionsThatAreNotUsedAreNamedOnce) {
  for (const char* name : {"a.csv", "b.parquet", "notes.md", "x/y.bin", ".hidden", "dataset_info.json"})
    write_bytes(scratch_ / "c" / name, "?");
  std::vector<std::string> notes;
  options_.note = [&](const std::string& note) { notes.push_back(note); };
  options_.source.seed = 5;
  prepare(options_);
  const std::vector<std::string> expected = {
      "not read: a.csv (a CSV file), b.parquet (a Parquet file), dataset_info.json (no data), notes.md and 1 "
      "more; --source jsonl reads .jsonl, .json, also with .gz",
      "train: " + (scratch_ / "c/train.jsonl").string(),
      "validation: " + (scratch_ / "c/validation.jsonl").string(),
      "test: " + (scratch_ / "c/test.jsonl").string(), "not used: --seed, which is for --source synthetic"};
  EXPECT_EQ(notes, expected);
}

// Notebooks append EOS_TOKEN to each text before they save it.
TEST_F(PrepareTest, NamesOfSpecialTokensInTextsAreCounted) {
  write_bytes(
      scratch_ / "c/train.jsonl",
      "{\"document\": \"one\", \"summary\": \"s</s>\"}\n{\"document\": \"<s>two\", \"summary\": \"<unk>\"}\n"
      "{\"document\": \"three <|im_end|>\", \"summary\": \"s\"}\n{\"document\": \"four\", \"summary\": \"< "
      "/s>\"}\n{\"document\": \"five\", \"summary\": \"of LLaMA 3<|eot_id|>\"}\n");
  write_bytes(scratch_ / "added_tokens.json", R"({"<|im_end|>": 400})");
  std::vector<std::string> notes;
  options_.note = [&](const std::string& note) { notes.push_back(note); };
  options_.prompt_template = "<s>{document}:";
  prepare(options_);
  EXPECT_HAS(notes.at(notes.size() - 2), "the template has the name of a special token, <s>");
  EXPECT_HAS(notes.back(), "3 summaries and 2 documents have the name of a special token");
  EXPECT_HAS(notes.back(), "The first: " + (scratch_ / "c/train.jsonl").string() + ":1: </s>");
}

TEST_F(PrepareTest, TheUnitOfProgressIsThatOfWhatIsCounted) {
  std::vector<PrepareProgress> calls;
  options_.progress = [&](const PrepareProgress& now) { calls.push_back(now); };
  prepare(options_);
  EXPECT_EQ(calls.at(0).doing, "encoding");
  EXPECT_EQ(calls.at(0).unit, "byte");
  const std::string lines = read_bytes(scratch_ / "c/train.jsonl");
  write_gzip(scratch_ / "z/train.jsonl.gz", lines + lines);
  options_.source.inputs = {scratch_ / "z"};
  options_.output = scratch_ / "out2";
  calls.clear();
  prepare(options_);
  EXPECT_EQ(calls.at(0).doing, "encoding compressed text");
  EXPECT_EQ(calls.at(0).total, std::ssize(read_bytes(scratch_ / "z/train.jsonl.gz")));
  // With so many files, the unit of progress is the file: the bytes of a file must not count.
  CorpusSource many = options_.source;
  many.kind = SourceKind::kText;
  many.inputs.assign(10'001, scratch_ / "c/test.jsonl");
  EXPECT_EQ(progress_unit(many), "file");
  for (const SourceKind kind : {SourceKind::kText, SourceKind::kJsonl}) {
    many.kind = kind;
    many.document_field = kind == SourceKind::kText ? "summary" : "document";
    CorpusProgress progress;
    read_corpus(many, progress, [](CorpusExample&) {});
    EXPECT_EQ(progress.total, 10'001);
    EXPECT_EQ(progress.done, 10'001);
  }
}

TEST_F(PrepareTest, AValidationFractionOfSyntheticNewsIsNotUsedAndSaidSo) {
  options_.source = {};
  options_.source.kind = SourceKind::kSynthetic;
  options_.source.examples = 40;
  options_.source.validation_fraction = 0.3;
  std::string notes;
  options_.note = [&](const std::string& note) { notes += note + "\n"; };
  prepare(options_);
  EXPECT_HAS(notes, "not used: --validation-fraction, as --source synthetic makes all three splits");
}

TEST_F(PrepareTest, LearningATokenizerStops) {
  options_.source = {};
  options_.source.kind = SourceKind::kSynthetic;
  options_.source.examples = 20000;
  options_.tokenizer.clear();
  options_.vocab_size = 20000;  // training would take minutes without the stop
  bool learning = false;
  int asked = 0;
  options_.note = [&](const std::string& note) { learning |= note.starts_with("learning a tokenizer"); };
  options_.stop_requested = [&] { return learning && ++asked == 3; };
  const auto before = listing();
  EXPECT_THROW(prepare(options_), PrepareStopped);
  EXPECT_TRUE(learning);
  EXPECT_EQ(listing(), before);
}

TEST_F(PrepareTest, AStopLeavesNothing) {
  options_.source = {};
  options_.source.kind = SourceKind::kSynthetic;
  // So many examples that the stop comes in the middle of the work.
  options_.source.examples = 100000;
  int progress_calls = 0;
  options_.progress = [&](const PrepareProgress&) { ++progress_calls; };
  options_.stop_requested = [&] { return progress_calls >= 10; };
  const auto before = listing();
  EXPECT_THROW(prepare(options_), PrepareStopped);
  EXPECT_EQ(progress_calls, 10);
  EXPECT_EQ(listing(), before);
}

TEST_F(PrepareTest, AFullDiskIsAStorageErrorAndLeavesNothing) {
  options_.source = {};
  options_.source.kind = SourceKind::kSynthetic;
  options_.source.examples = 20000;
  // A limit on file sizes acts as a full disk: with SIGXFSZ ignored, writes beyond it fail with EFBIG.
  struct rlimit old {};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1 << 20, old.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  expect_refused(ExitCode::kStorage, "cannot write");
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
}

}  // namespace
}  // namespace ripstop
