// `ripstop prepare` through the program: its messages about the input, and its files.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/data/compressed_files.h"
#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"

namespace ripstop {
namespace {

class PrepareCommand : public testing::Test {
 protected:
  std::string file(const std::string& name) const { return (scratch_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    write_bytes(scratch_ / name, bytes);
    return file(name);
  }
  /// `count` lines, each with another pair.
  static std::string pairs(int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += fmt::format(
          "{{\"document\": \"The harbour number {} opened on Monday.\", \"summary\": \"Harbour {} "
          "opened.\"}}\n",
          i, i);
    }
    return lines;
  }
  ProgramRun prepare(const std::string& arguments) const {
    return run_program("prepare " + arguments + " --output " + file("out"));
  }
  void expect_refused(const std::string& arguments, int code, const std::string& what) const {
    expect_exit(prepare(arguments), code, what);
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
  }
  ScratchDirectory scratch_;
};

// A damaged archive is refused: reading only a part of its articles would go unnoticed.
TEST_F(PrepareCommand, DamagedGzipIsRefusedByName) {
  const std::string text = pairs(300);
  write_gzip(scratch_ / "first.gz", text);
  const std::string first = read_bytes(scratch_ / "first.gz");
  const std::string whole = first + first;
  const auto with = [&](const std::string& bytes) {
    expect_refused("--vocab-size 350 --input " + write("train.jsonl.gz", bytes), 65,
                   "train.jsonl.gz: damaged gzip");
  };
  std::string letters = whole;
  for (size_t i = 0; i < 5; ++i) letters[first.size() / 2 + i] ^= 0x20;
  with(letters);
  std::string trailer = whole;
  trailer.replace(whole.size() - 8, 8, 8, '\0');
  with(trailer);
  std::string header = whole;
  header[first.size()] ^= 1;
  with(header);
  with(whole.substr(0, first.size() + 5));
  with(whole + "garbage");
  write_gzip(scratch_ / "more.gz", pairs(450).substr(text.size()));
  const ProgramRun good = expect_success(prepare(
      "--vocab-size 350 --input " + write("train.jsonl.gz", first + read_bytes(scratch_ / "more.gz"))));
  EXPECT_HAS(good.out, "train              450 ");
}

TEST_F(PrepareCommand, WhatItCountsHasAUnit) {
  const ProgramRun run =
      expect_success(prepare("--vocab-size 350 --input " + write("train.jsonl", pairs(300))));
  EXPECT_HAS(run.err, "prepare: encoding  26.4 KiB in ");
  // A time of 0s gives no rate.
  EXPECT_EQ(run.err.find("in 0s  "), std::string::npos) << run.err;
  // The time of training the tokenizer is not part of reading.
  const size_t learns = run.err.find("note: learning a tokenizer of 350 pieces from 19.7 KiB of text\n");
  EXPECT_NE(learns, std::string::npos) << run.err;
  EXPECT_LT(run.err.find("prepare: reading text for the tokenizer  26.4 KiB in "), learns) << run.err;
  std::filesystem::remove_all(scratch_ / "out");
  const ProgramRun made = prepare("--source synthetic --examples 300 --vocab-size 350");
  EXPECT_HAS(made.err, "prepare: encoding  300 examples in ");
}

TEST_F(PrepareCommand, HelpSaysWhatIsReadAndHowSplitsAreTold) {
  const ProgramRun run = expect_success(run_program("prepare --help"));
  EXPECT_HAS(run.out, ".jsonl, .json, .txt (also with .gz)");
  EXPECT_HAS(run.out, "begins or ends with val, valid or dev is validation, with test or eval it is test");
}

// The table counts stored tokens; plan and train count tokens that predict another.
TEST_F(PrepareCommand, TheTokensOfAnEpochAreThoseOfPlan) {
  const ProgramRun run =
      expect_success(prepare("--vocab-size 350 --input " + write("train.jsonl", pairs(300))));
  const size_t at = run.out.find("epoch        ");
  ASSERT_NE(at, std::string::npos) << run.out;
  const std::string tokens = run.out.substr(at + 13, run.out.find(" of train", at) - at - 13);
  const std::string config =
      write("m.toml", "[run]\ndirectory = \"" + file("run") +
                          "\"\n[model]\npreset = \"15m\"\n[data]\ndirectory = \"" + file("out") +
                          "\"\nsequence_length = 256\n[train]\nepochs = 1\n"
                          "global_batch_sequences = 4\n[optimizer]\nlearning_rate = 1e-3\n");
  const ProgramRun plan = expect_success(run_program("plan " + config));
  EXPECT_HAS(plan.out, " steps, " + tokens + "\n") << tokens;
}

TEST_F(PrepareCommand, CompressedBytesAreCalledSo) {
  write_gzip(scratch_ / "train.jsonl.gz", pairs(300));
  const ProgramRun run = expect_success(prepare("--vocab-size 350 --input " + file("train.jsonl.gz")));
  EXPECT_HAS(run.err, "prepare: reading compressed text for the tokenizer  ");
  EXPECT_HAS(run.err, "prepare: encoding compressed text  ");
}

TEST_F(PrepareCommand, EachMistakeHasItsFix) {
  const std::string good = write("train.jsonl", pairs(300));
  expect_refused("--vocab-size 350 --input " + write("x.parquet", "PAR1"), 64, ".to_json('train.jsonl')");
  expect_refused("--vocab-size 350 --input " + write("x.json", "[\n]\n"), 65, "this may be an array");
  expect_refused(
      "--vocab-size 350 --input " + write("cnn.jsonl", "{\"article\": \"a\", \"highlights\": \"h\"}\n"), 65,
      "--document-field article --summary-field highlights");
  expect_refused("--vocab-size 350 --input " + write("test_x.jsonl", pairs(2)), 65,
                 "by name test_x.jsonl counts as test");
  expect_refused("--input " + good, 64, "--vocab-size 8000 trains one");
  expect_refused("--input " + good + " --vocab-size 350 --tokenizer x.model", 64, "leave out --vocab-size");
  expect_refused("--input " + good + " --vocab-size 350 --threads 0", 64, "1 to 1024 is possible");
  expect_refused("--input " + good + " --vocab-size 350 --validation-fraction 5", 64,
                 "--validation-fraction 0.05 takes");
  expect_refused("--input " + file("absent") + " --vocab-size 350", 65, "nothing is downloaded");
  expect_refused("--source synthetic --vocab-size 350", 64, "give --examples 20000");
  expect_refused("--input " + good + " --tokenizer " + write("tokenizer.json", "{\"version\": \"1.0\"}"), 65,
                 "tokenizer.json: has no 'model'");
  expect_refused("--input " + good + " --tokenizer meta-llama/Llama-2-7b-hf", 65, "nothing is downloaded");
  expect_refused("--input " + good + " --vocab-size 350 --template TL", 64, "needs {document} exactly once");
  expect_refused("--input " + good + " --vocab-size 50000", 64, "--vocab-size");
}

}  // namespace
}  // namespace ripstop
