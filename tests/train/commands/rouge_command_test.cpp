#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/compressed_files.h"
#include "tests/expect_has.h"
#include "tests/train/commands/run_program.h"

namespace ripstop {
namespace {

class RougeCommand : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& bytes) {
    write_bytes(scratch_ / name, bytes);
    return (scratch_ / name).string();
  }
  ScratchDirectory scratch_;
};

TEST_F(RougeCommand, PrintsOneJsonDocument) {
  const std::string reference = file("reference", "a b c d\nx y\n");
  const std::string candidate = file("candidate.jsonl", "{\"summary\": \"a b\"}\n{\"summary\": \"y x\"}\n");
  const ProgramRun run =
      expect_success(run_program("rouge --reference " + reference + " --candidate " + candidate + " --json"));
  const auto scores = nlohmann::json::parse(run.out);
  EXPECT_EQ(scores.at("examples"), 2);
  EXPECT_DOUBLE_EQ(scores.at("rouge1").at("precision").get<double>(), 1);
  EXPECT_DOUBLE_EQ(scores.at("rouge1").at("recall").get<double>(), 0.75);
  EXPECT_DOUBLE_EQ(scores.at("rouge2").at("recall").get<double>(), (1.0 / 3 + 0) / 2);
  EXPECT_DOUBLE_EQ(scores.at("rougeL").at("fmeasure").get<double>(), (2.0 / 3 + 0.5) / 2);
}

// The command of the hint: test.jsonl may have lines that prepare skipped.
TEST_F(RougeCommand, PredictionsHaveTheirReferences) {
  const std::string predictions =
      file("predictions.jsonl", "{\"id\": 1, \"reference\": \"a b\", \"summary\": \"a\"}\n");
  const std::string all = file("test.jsonl", "{\"summary\": \"a b\"}\n{\"summary\": \"a b\"}\n");
  expect_exit(run_program("rouge --reference " + all + " --candidate " + predictions), 65,
              "jq -c '{summary: .reference}' predictions.jsonl | ripstop rouge");
  const ProgramRun run =
      expect_success(run_program("rouge --reference - --candidate " + predictions + " --json",
                                 "jq -c '{summary: .reference}' " + predictions + " |"));
  EXPECT_HAS(run.out, "\"recall\": 0.5");
  const std::string hindi = file("hindi", "\u092f\u0939\n");
  EXPECT_HAS(run_program("rouge --reference " + hindi + " --candidate " + hindi).err,
             "note: 1 of 1 references");
}

// Scores of texts in two orders would look like results.
TEST_F(RougeCommand, IdsInAnotherOrderAreRefused) {
  const auto line = [](const std::string& id) { return "{\"id\": " + id + ", \"summary\": \"a\"}\n"; };
  const std::string one = file("one", line("1") + line("\"b\"") + line("3"));
  expect_exit(run_program("rouge --reference " + one + " --candidate " +
                          file("other", line("1") + line("3") + line("4"))),
              65, "id 3 is text 3 of " + one + ", but text 2 of ");
  for (const std::string& ids : {line("1") + line("\"b\"") + line("3"), line("7") + line("8") + line("9"),
                                 std::string("a\na\na\n"), line("null") + line("\"b\"") + line("3")})
    EXPECT_EQ(run_program("rouge --reference " + one + " --candidate " + file("same", ids)).exit_code, 0)
        << ids;
}

TEST_F(RougeCommand, OnlyOneOfBothIsStandardInput) {
  expect_exit(run_program("rouge --reference - --candidate - </dev/null"), 64,
              "hint=\"save one of them first");
  const std::string line = file("a", "{\"summary\": \"a\", \"reference\": \"a\"}\n");
  for (const char* piped : {"-", "/dev/fd/0"}) {
    expect_exit(run_program("rouge --compare " + line + " " + piped + " --resamples 9", "cat " + line + " |"),
                64, "--compare reads its files twice");
  }
}

TEST_F(RougeCommand, ReadsGzip) {
  write_gzip(scratch_ / "reference.jsonl.gz", "{\"summary\": \"a b c d\"}\n{\"summary\": \"x y\"}\n");
  write_gzip(scratch_ / "candidate.gz", "a b\ny x\n");
  const ProgramRun run =
      expect_success(run_program("rouge --reference " + (scratch_ / "reference.jsonl.gz").string() +
                                 " --candidate " + (scratch_ / "candidate.gz").string() + " --json"));
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(run.out).at("rouge1").at("recall").get<double>(), 0.75);
  const std::string cut = read_bytes(scratch_ / "candidate.gz").substr(0, 20);
  expect_exit(
      run_program("rouge --reference " + file("reference", "a\n") + " --candidate " + file("cut.gz", cut)),
      65, "cut.gz: damaged gzip");
}

TEST_F(RougeCommand, PrintsATableAndReadsStandardInput) {
  const std::string reference = file("reference", "a b c d\n");
  const ProgramRun run =
      expect_success(run_program("rouge --reference " + reference + " --candidate -", "printf 'a b' |"));
  EXPECT_EQ(run.out,
            "         precision    recall  fmeasure\n"
            "rouge1      1.0000    0.5000    0.6667\n"
            "rouge2      1.0000    0.3333    0.5000\n"
            "rougeL      1.0000    0.5000    0.6667\n"
            "means over 1 example\n");
}

TEST_F(RougeCommand, GzipIsReadFromFilesAndStandardInput) {
  const std::string reference = file("reference.jsonl", "{\"summary\": \"a b c d\"}\n");
  const std::string candidate = file("candidate", "a b\n");
  ASSERT_EQ(std::system(("gzip -k " + reference + " " + candidate).c_str()), 0);
  const ProgramRun plain = run_program("rouge --reference " + reference + " --candidate " + candidate);
  const ProgramRun packed =
      expect_success(run_program("rouge --reference " + reference + ".gz --candidate " + candidate + ".gz"));
  EXPECT_EQ(packed.out, plain.out);
  EXPECT_EQ(
      run_program("rouge --reference " + reference + " --candidate -", "cat " + candidate + ".gz |").out,
      plain.out);
}

TEST_F(RougeCommand, ComparesTwoEvaluations) {
  std::filesystem::create_directory(scratch_ / "a");
  std::string lines_a, lines_b, others;
  for (int i = 0; i < 40; ++i) {
    const std::string reference = ", \"reference\": \"rain fell over r" + std::to_string(i) + "\"}\n";
    lines_a += "{\"summary\": \"rains fall\"" + reference;
    lines_b += (i % 2 ? "{\"summary\": \"rain fell\"" : "{\"summary\": \"sun\"") + reference;
    others += (i < 39 ? "{\"summary\": \"sun\"" + reference : "{\"summary\": \"\", \"reference\": \"\"}\n");
  }
  file("a/predictions.jsonl", lines_a);
  const std::string compare = "rouge --compare " + (scratch_ / "a").string() + " ",
                    b = file("b.jsonl", lines_b);
  const ProgramRun run = expect_success(run_program(compare + b + " --json --resamples 500 --seed 3"));
  const auto stemmed = nlohmann::json::parse(run.out);
  EXPECT_EQ(stemmed.at("examples"), 40);
  EXPECT_EQ(stemmed.at("resamples"), 500);
  EXPECT_EQ(stemmed.at("seed"), 3);
  EXPECT_EQ(stemmed.at("stemmer"), true);
  const auto& rouge1 = stemmed.at("rouge1");  // of A 1 word of 2 and 4, of B 2 of them in every other text
  EXPECT_NEAR(rouge1.at("a").get<double>(), 1.0 / 3, 1e-12);
  EXPECT_NEAR(rouge1.at("b").get<double>(), 1.0 / 3, 1e-12);
  EXPECT_NEAR(rouge1.at("difference").get<double>(), 0, 1e-12);
  EXPECT_LT(rouge1.at("low"), -0.05);
  EXPECT_GT(rouge1.at("high"), 0.05);
  const ProgramRun whole = expect_success(run_program(compare + b + " --no-stemmer"));
  EXPECT_EQ(whole.out.substr(0, whole.out.find(" to ")),
            "                 A         B     B - A   95 % interval\n"
            "rouge1      0.0000    0.3333   +0.3333   +0.2333");
  EXPECT_HAS(whole.out,
             "paired bootstrap of documents (Koehn 2004), percentile interval, 10000 resamples, seed 1\n");
  expect_exit(run_program(compare + file("other", others)), 65, "text 40 has another reference in");
  EXPECT_EQ(run_program(compare + b + " " + b).exit_code, 64);
  EXPECT_EQ(run_program(compare + b + " --candidate " + b).exit_code, 64);
}

TEST_F(RougeCommand, RefusesWhatDoesNotFit) {
  const std::string one = file("one", "a\n"), two = file("two", "a\nb\n"), bad = file("bad", "\xFF\n");
  const ProgramRun counts = run_program("rouge --reference " + one + " --candidate " + two);
  expect_exit(counts, 65, one + " has 1 text, " + two + " has 2 texts");
  EXPECT_EQ(counts.out, "");
  EXPECT_EQ(run_program("rouge --reference " + one + " --candidate " + bad).exit_code, 65);
  EXPECT_EQ(run_program("rouge --reference " + one + " --candidate /absent").exit_code, 65);
  EXPECT_EQ(run_program("rouge --reference " + one + " --candidate /dev/null").exit_code, 65);
  EXPECT_EQ(run_program("rouge --reference - --candidate -").exit_code, 64);
  EXPECT_EQ(run_program("rouge --reference " + one).exit_code, 64);
  EXPECT_EQ(run_program("rouge --reference " + one + " --candidat " + one).exit_code, 64);
  EXPECT_EQ(run_program("rouge --help").exit_code, 0);
}

}  // namespace
}  // namespace ripstop
