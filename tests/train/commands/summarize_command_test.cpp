// `ripstop summarize` on a run of random weights: input, output and refusals.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tests/data/compressed_files.h"
#include "tests/expect_has.h"
#include "tests/train/commands/random_run.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class SummarizeCommand : public RandomRun {};

TEST_F(SummarizeCommand, SummariesAreThePredictions) {
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 5 --output " + file("five")).exit_code, 0);
  const std::vector<json> predictions = lines_of(read_bytes(fs::path(file("five")) / "predictions.jsonl"));
  std::string documents;
  for (const json& prediction : predictions)
    documents += json{{"document", prediction.at("document")}, {"id", prediction.at("id")}}.dump() + "\n\n";
  const std::string input = write("documents.jsonl", documents);
  ASSERT_EQ(
      run_program("summarize " + run() + " --batch-size 2 --input " + input + " --output " + file("out"))
          .exit_code,
      0);
  const ProgramRun piped =
      expect_success(run_program("summarize " + run() + " --batch-size 3", "cat " + input + " |"));
  EXPECT_EQ(piped.out, read_bytes(file("out")));
  write_gzip(scratch_ / "documents.jsonl.gz", documents);
  const ProgramRun packed =
      run_program("summarize " + run() + " --batch-size 3 --input " + file("documents.jsonl.gz"));
  EXPECT_EQ(packed.out, piped.out) << packed.err;
  const std::string fifo = file("fifo");
  EXPECT_EQ(run_program("summarize " + run() + " --batch-size 3 --input " + fifo,
                        "mkfifo " + fifo + " && { cat " + input + " >" + fifo + " & } ;")
                .out,
            piped.out);
  const std::vector<json> summaries = lines_of(piped.out);
  ASSERT_EQ(summaries.size(), predictions.size());
  for (size_t i = 0; i < summaries.size(); ++i) {
    EXPECT_EQ(summaries[i].at("summary"), predictions[i].at("summary"));
    EXPECT_EQ(summaries[i].at("id"), predictions[i].at("id"));
  }
}

TEST_F(SummarizeCommand, ReadsGzip) {
  const std::string plain = write("plain.jsonl", "{\"document\": \"one\"}\n{\"document\": \"two\"}\n");
  ASSERT_EQ(std::system(("gzip -k " + plain).c_str()), 0);
  const ProgramRun got = expect_success(run_program("summarize " + run() + " --input " + plain + ".gz"));
  EXPECT_EQ(got.out, run_program("summarize " + run() + " --input " + plain).out);
  EXPECT_EQ(lines_of(got.out).size(), 2u);
}

TEST_F(SummarizeCommand, ATextFileIsOneDocument) {
  const std::string lines = write("in.jsonl", "{\"document\": \"one \\\"two\\\"\\n\\nthree\"}\n");
  const std::string expected = run_program("summarize " + run() + " --input " + lines).out;
  ASSERT_EQ(lines_of(expected).size(), 1U);
  for (const char* name : {"in.txt", "in.text", "in.md"})
    EXPECT_EQ(run_program("summarize " + run() + " --input " + write(name, "one \"two\"\n\nthree\n")).out,
              expected)
        << name;
  write_gzip(scratch_ / "in.txt.gz", "one \"two\"\r\n\r\nthree");
  EXPECT_EQ(run_program("summarize " + run() + " --input " + file("in.txt.gz")).out, expected);
  const std::string objects = write("objects.txt", "\n{\"document\": \"one\"}\n{\"document\": \"two\"}\n");
  EXPECT_EQ(lines_of(run_program("summarize " + run() + " --input " + objects).out).size(), 2U);
  expect_exit(run_program("summarize " + run() + " --input " + write("latin.txt", "caf\xe9\n")), 65,
              "latin.txt:1: ");
}

// An existing output is not replaced without --force.
TEST_F(SummarizeCommand, KeepsAnOutputThatExists) {
  const std::string input = write("in.jsonl", "{\"document\": \"one\"}\n{\"document\": null}\n");
  const std::string output = write("out.jsonl", "summaries\n");
  const std::string words = "summarize " + run() + " --input " + input + " --output " + output;
  expect_exit(run_program(words), 64, "exists already");
  EXPECT_EQ(read_bytes(output), "summaries\n");
  const ProgramRun replaced = expect_success(run_program(words + " --force"));
  EXPECT_EQ(lines_of(read_bytes(output)).size(), 2u);
  EXPECT_HAS(replaced.err, "1 of 2 documents empty or null");
}

// At a terminal, summarize prompts for documents and answers each line at once.
TEST_F(SummarizeCommand, SaysThatItReadsATerminal) {
  const int keyboard = posix_openpt(O_RDWR | O_NOCTTY);
  if (keyboard < 0) GTEST_SKIP() << "no pseudo-terminals here: /dev/ptmx cannot be opened";
  ASSERT_EQ(grantpt(keyboard), 0);
  ASSERT_EQ(unlockpt(keyboard), 0);
  const std::string terminal = ptsname(keyboard);
  const std::string typed = "{\"document\": \"one\"}\n{\"document\": \"two\"}\n\x04";
  ASSERT_EQ(::write(keyboard, typed.data(), typed.size()), std::ssize(typed));
  const ProgramRun got = run_program("summarize " + run() + " <" + terminal);
  close(keyboard);
  ASSERT_EQ(got.exit_code, 0) << got.err;
  EXPECT_EQ(
      got.err.find("reading documents from standard input, one JSON object a line: {\"document\": \"...\"} "
                   "(Ctrl-D ends; --input FILE reads a file)\n"),
      0u)
      << got.err;
  EXPECT_EQ(lines_of(got.out).size(), 2u);
  const ProgramRun piped = run_program("summarize " + run(), "echo '{\"document\": \"one\"}' |");
  EXPECT_EQ(piped.err.find("reading documents"), std::string::npos) << piped.err;
}

TEST_F(SummarizeCommand, RefusesBadLines) {
  const std::string bad = write("bad.jsonl", "{\"document\": \"fine\"}\n{\"text\": \"not\"}\n");
  expect_exit(run_program("summarize " + run() + " --input " + bad + " --output " + file("none")), 65,
              "bad.jsonl:2: no field 'document'");
  EXPECT_FALSE(fs::exists(file("none")));
  EXPECT_EQ(run_program("summarize " + run() + " --input " + file("absent")).exit_code, 65);
  expect_exit(run_program("summarize " + run() + " --input " + bad + " --output " + bad), 64,
              "are the same file");
  EXPECT_EQ(run_program("summarize " + run() + " --template 'no place'", "echo '{\"document\": \"d\"}' |")
                .exit_code,
            64);
  EXPECT_EQ(run_program("summarize " + run(), "printf '' |").out, "");
  const ProgramRun piped = run_program("summarize " + run(), "echo nonsense |");
  expect_exit(piped, 65,
              "not a JSON object: 'nonsense'\" hint=\"write one JSON object a line: {\\\"document");
  EXPECT_HAS(piped.err, "jq -nc --rawfile d FILE '{document: $d}'");
  for (const auto& [word, hint] : {std::pair(bad, "ripstop summarize PATH --input " + bad),
                                   std::pair(file("data"), "ripstop evaluate PATH --data " + file("data")),
                                   std::pair(run(), std::string("give one model at a time"))}) {
    expect_exit(run_program("summarize " + run() + " " + word), 64, hint + "\"\n");
  }
  const ProgramRun array = run_program("summarize " + run(), "echo '[{\"document\": \"one\"}]' |");
  EXPECT_HAS(array.err, "array");
  expect_exit(run_program("summarize " + run() + " --output " + file("no/such/folder"), "printf '' |"), 64,
              "there is no directory " + file("no/such") + "\" hint=\"mkdir -p ");
  // The run is checked before standard input is read.
  EXPECT_EQ(run_program("summarize " + file("absent"), "echo nonsense |").exit_code, 64);
}

}  // namespace
}  // namespace ripstop
