#include "data/prepare.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>

#include "data/prompt_template.h"
#include "data/token_dataset.h"
#include "data/tokenizer.h"
#include "model/core/error.h"
#include "tests/data/compressed_files.h"
#include "tests/data/scratch_directory.h"
#include "tests/data/small_tokenizer.h"

namespace ripstop {
namespace {

/// A small corpus, a tokenizer and the options that turn them into `out`.
class PrepareTest : public testing::Test {
 protected:
  PrepareTest() {
    write_bytes(scratch_ / "tokenizer.model", small_model());
    write_bytes(scratch_ / "c/train.jsonl",
                "{\"document\": \"The harbour opened on Monday.\", \"summary\": \"The harbour opened.\", "
                "\"id\": \"a\"}\n"
                "{\"document\": \"The market closed on Tuesday.\", \"summary\": \"The market closed.\", "
                "\"id\": \"b\"}\n");
    write_bytes(scratch_ / "c/validation.jsonl",
                "{\"document\": \"Old — bridge\\n\\nnear.\", \"summary\": \"A bridge.\", \"id\": \"v\"}\n");
    write_bytes(scratch_ / "c/test.jsonl",
                "{\"document\": \"new police\", \"summary\": \"police\", \"id\": \"t\"}\n");
    options_.source.inputs = {scratch_ / "c"};
    options_.tokenizer = scratch_ / "tokenizer.model";
    options_.output = scratch_ / "out";
  }
  /// Expects prepare to refuse with `code` and a line that has `word`, and to leave no files.
  void expect_refused(ExitCode code, const std::string& word) {
    std::vector<std::filesystem::path> before = listing();
    try {
      prepare(options_);
      FAIL() << "accepted; expected: " << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    }
    EXPECT_EQ(listing(), before) << "left something behind";
  }
  std::vector<std::filesystem::path> listing() const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(scratch_.path()))
      paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  ScratchDirectory scratch_;
  PrepareOptions options_;
};

std::vector<int32_t> tokens_of(const TokenDataset& dataset, int64_t example) {
  std::vector<int32_t> ids(
      static_cast<size_t>(dataset.example_end(example) - dataset.example_begin(example)));
  dataset.read_tokens(dataset.example_begin(example), dataset.example_end(example), ids.data());
  return ids;
}

TEST_F(PrepareTest, WritesWhatTheContractNames) {
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.splits[0].examples, 2);
  EXPECT_EQ(report.skipped(), 0);
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
  EXPECT_EQ(ids.front(), tokenizer.bos());
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
  // test.jsonl is read before train.jsonl, and the first of equal examples stays: test keeps its "d one".
  EXPECT_EQ(report.splits[2].examples, 2);
  EXPECT_EQ(report.splits[0].examples, 3);
  EXPECT_EQ(report.splits[0].duplicates, 2);
  EXPECT_EQ(report.splits[0].empty, 2);
  EXPECT_EQ(report.splits[0].invalid_utf8, 1);
  EXPECT_EQ(report.splits[0].with_nul, 1);
  EXPECT_EQ(report.splits[0].control_characters, 1);
  EXPECT_EQ(report.skipped(), 6);
  EXPECT_NE(report.first_skipped.find("train.jsonl:1: "), std::string::npos) << report.first_skipped;
  options_.output = scratch_ / "strict";
  options_.strict = true;
  expect_refused(ExitCode::kInputData, "train.jsonl:1: ");
}

TEST_F(PrepareTest, TextIsKeptWholeWithoutATarget) {
  write_bytes(scratch_ / "t/train.txt", "The harbour opened.\nThe market closed.\n");
  options_.source.inputs = {scratch_ / "t"};
  const PrepareReport report = prepare(options_);
  EXPECT_EQ(report.source.kind, SourceKind::kText);
  const TokenDataset train(scratch_ / "out/train.h5");
  EXPECT_EQ(train.header().kind, ExampleKind::kText);
  EXPECT_EQ(train.target_begin(0), 1);
  EXPECT_EQ(train.separator_begin(0), train.tokens());
  EXPECT_EQ(Tokenizer(scratch_ / "out").decode(tokens_of(train, 0)),
            "The harbour opened.\nThe market closed.\n");
}

TEST_F(PrepareTest, EveryFormOfInputGivesTheSameTokens) {
  write_gzip(scratch_ / "z/train.jsonl.gz", read_bytes(scratch_ / "c/train.jsonl"));
  prepare(options_);
  options_.source.inputs = {scratch_ / "z"};
  options_.output = scratch_ / "out2";
  prepare(options_);
  // Names, places and compression of the input are no part of the content.
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

TEST_F(PrepareTest, AnOutputThatIsThereIsNotTouched) {
  write_bytes(scratch_ / "out/precious", "x");
  expect_refused(ExitCode::kUsage, "exists already");
  EXPECT_EQ(read_bytes(scratch_ / "out/precious"), "x");
  std::filesystem::remove_all(scratch_ / "out");
  write_bytes(scratch_ / "out", "a file");
  expect_refused(ExitCode::kUsage, "exists already");
  std::filesystem::remove(scratch_ / "out");
  std::filesystem::create_directory(scratch_ / "out");
  EXPECT_EQ(prepare(options_).splits[0].examples, 2);  // an empty directory may be replaced
  options_.output = scratch_ / "tokenizer.model/out";
  expect_refused(ExitCode::kStorage, "cannot make");
}

TEST_F(PrepareTest, AStopLeavesNothing) {
  options_.source = {};
  options_.source.kind = SourceKind::kSynthetic;
  // Enough that the stop comes in the middle of the work.
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
  // A limit on file sizes stands for a full disk: writes beyond it fail with EFBIG once its signal is
  // ignored.
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
