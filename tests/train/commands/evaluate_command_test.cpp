// evaluate, as users call it, on a run of random weights: its files, resuming, refusals.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/expect_has.h"
#include "tests/train/checkpoint/checkpoint_model.h"
#include "tests/train/commands/random_run.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class EvaluateCommand : public RandomRun {};

TEST_F(EvaluateCommand, ScoresASplit) {
  const std::string output = file("scored");
  const ProgramRun got =
      expect_success(run_program("evaluate " + run() + " --limit 9 --json --output " + output));
  const json scores = json::parse(got.out);
  EXPECT_EQ(scores.at("step"), 7);
  EXPECT_EQ(scores.at("split"), "test");
  EXPECT_EQ(scores.at("examples"), 9);
  EXPECT_GT(scores.at("targets"), 9);
  // With random weights the loss is that of guessing, or larger.
  EXPECT_GT(scores.at("loss"), 5.0);
  EXPECT_NEAR(scores.at("perplexity").get<double>(), std::exp(scores.at("loss").get<double>()),
              1e-9 * scores.at("perplexity").get<double>());
  EXPECT_EQ(json::parse(read_bytes(fs::path(output) / "scores.json")), scores);
  // The scores match the written predictions.
  const std::string predictions = read_bytes(fs::path(output) / "predictions.jsonl");
  std::string references;
  for (const json& line : lines_of(predictions))
    references += json{{"summary", line.at("reference")}}.dump() + "\n";
  const ProgramRun again =
      expect_success(run_program("rouge --json --reference " + write("references", references) +
                                 " --candidate " + output + "/predictions.jsonl"));
  for (const char* name : {"rouge1", "rouge2", "rougeL"})
    EXPECT_EQ(json::parse(again.out).at(name), scores.at(name));
}

// An evaluation of five examples does not overwrite one of the whole split.
TEST_F(EvaluateCommand, OtherSettingsGoToDirectoriesOfTheirOwn) {
  ASSERT_EQ(run_program("evaluate " + run()).exit_code, 0);
  const std::string plain = "step_00000007-test/";
  const std::string scores = result(plain + "scores.json"), predictions = result(plain + "predictions.jsonl");
  const json all = json::parse(scores);
  const int64_t split = TokenDataset(scratch_ / "data/test.h5").examples();
  EXPECT_EQ(all.at("examples"), split);
  EXPECT_EQ(all.at("split_examples"), split);
  EXPECT_EQ(std::ssize(lines_of(predictions)), split);

  const ProgramRun five = expect_success(run_program("evaluate " + run() + " --limit 5"));
  const json limited = json::parse(result("step_00000007-test-limit5/scores.json"));
  EXPECT_EQ(limited.at("examples"), 5);
  EXPECT_EQ(limited.at("split_examples"), split);
  // The loss is over the same five examples.
  const TokenDataset dataset(scratch_ / "data/test.h5");
  int64_t targets = 0;
  for (int64_t i = 0; i < 5; ++i) targets += dataset.example_end(i) - dataset.target_begin(i);
  EXPECT_EQ(limited.at("targets"), targets);
  EXPECT_NE(limited.at("loss"), all.at("loss"));
  EXPECT_HAS(five.out, fmt::format("over {} targets of the first 5 of {} test examples", targets, split));
  EXPECT_HAS(five.out, "summaries there already: 5 of 5, from " + run());
  const std::string kept = result("step_00000007-test-limit5/predictions.jsonl");
  EXPECT_EQ(kept, predictions.substr(0, kept.size()));

  ASSERT_EQ(run_program("evaluate " + run() + " --limit 5 --max-new-tokens 6").exit_code, 0);
  const std::vector<json> shorter =
      lines_of(result("step_00000007-test-limit5-max_new_tokens6/predictions.jsonl"));
  ASSERT_EQ(shorter.size(), 5u);
  EXPECT_LT(shorter[0].at("summary").get<std::string>().size(),
            lines_of(kept)[0].at("summary").get<std::string>().size());
  EXPECT_EQ(result(plain + "scores.json"), scores);
  EXPECT_EQ(result(plain + "predictions.jsonl"), predictions);

  // Giving the run's own settings changes nothing.
  const ProgramRun same =
      run_program(fmt::format("evaluate {} generation.max_new_tokens=12 --limit {}", run(), split + 1));
  EXPECT_HAS(same.out, fmt::format("summaries there already: {0} of {0}\n", split)) << same.err;
  EXPECT_EQ(result(plain + "scores.json"), scores);

  expect_exit(
      run_program("evaluate " + run() + " --limit 5 --output " + run() + "/evaluation/step_00000007-test"),
      64, fmt::format("has an evaluation with other settings: examples {} -> 5", split));
  EXPECT_EQ(result(plain + "scores.json"), scores);
}

TEST_F(EvaluateCommand, OtherDataGoesToADirectoryOfItsOwn) {
  fs::copy(scratch_ / "data", scratch_ / "moved");
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 2 --data " + file("moved")).exit_code, 0);
  EXPECT_NE(result("step_00000007-test-limit2/scores.json"), "");
  expect_success(run_program("prepare --source synthetic --examples 300 --seed 4 --output " + file("others") +
                             " --tokenizer " + file("data/tokenizer.model")));
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 2 --data " + file("others")).exit_code, 0);
  const std::string hash = TokenDataset(scratch_ / "others/test.h5").content_hash();
  EXPECT_NE(result("step_00000007-test-limit2-data-" + hash.substr(0, 8) + "/scores.json"), "");
}

TEST_F(EvaluateCommand, GoesOnWhereItStopped) {
  const fs::path whole = file("whole"), parts = file("parts");
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 8 --output " + whole.string()).exit_code, 0);
  fs::create_directories(parts);
  fs::copy_file(whole / "settings.json", parts / "settings.json");
  const std::string predictions = read_bytes(whole / "predictions.jsonl");
  size_t third = 0;
  for (int i = 0; i < 3; ++i) third = predictions.find('\n', third) + 1;
  write_bytes(parts / "predictions.jsonl", predictions.substr(0, third) + "{\"example\":3,\"id\":\"torn");
  const ProgramRun rest = expect_success(
      run_program("evaluate " + run() + " --limit 8 --batch-size 2 --output " + parts.string()));
  EXPECT_HAS(rest.out, "summaries there already: 3 of 8\n");
  EXPECT_EQ(read_bytes(parts / "predictions.jsonl"), predictions);
  EXPECT_EQ(read_bytes(parts / "scores.json"), read_bytes(whole / "scores.json"));
}

TEST_F(EvaluateCommand, TakesSummariesOfASmallerLimit) {
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 3").exit_code, 0);
  const ProgramRun more = expect_success(run_program("evaluate " + run() + " --limit 6 --json"));
  EXPECT_HAS(more.err, "summaries there already: 3 of 6, from ");
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 6 --output " + file("six")).exit_code, 0);
  EXPECT_EQ(result("step_00000007-test-limit6/predictions.jsonl"),
            read_bytes(scratch_ / "six/predictions.jsonl"));
}

TEST_F(EvaluateCommand, WritesBesideTheRun) {
  const ProgramRun got =
      expect_success(run_program("evaluate " + run() + " --checkpoint 7 --split validation --limit 2"));
  EXPECT_HAS(got.out, "rougeL");
  EXPECT_NE(result("step_00000007-validation-limit2/scores.json"), "");
  // Paths as people type them, also from inside the run: the results are always in the run.
  const std::string inside = "cd " + run() + "/checkpoints/step_00000007 &&";
  for (const char* path : {".", "../step_00000007", "../../", "../../checkpoints"}) {
    const ProgramRun again =
        run_program(std::string("evaluate ") + path + " --split validation --limit 2", inside);
    ASSERT_EQ(again.exit_code, 0) << path << again.err;
    EXPECT_HAS(again.out, "summaries there already: 2 of 2\n") << path;
  }
  for (const char* name : {"val", "dev"}) {
    const ProgramRun again = run_program("evaluate " + run() + " --json --limit 2 --split " + name);
    EXPECT_EQ(again.out, result("step_00000007-validation-limit2/scores.json")) << name;
  }
  expect_success(run_program("evaluate " + run() + " --limit 1 --split eval"));
  EXPECT_NE(result("step_00000007-test-limit1/scores.json"), "");
}

// The run belongs to somebody else.
TEST_F(EvaluateCommand, WhereTheRunCannotBeWrittenOutputIsNamed) {
  fs::create_directory_symlink("/proc", fs::path(run()) / "evaluation");
  expect_exit(run_program("evaluate " + run() + " --limit 1"), 74,
              "where the run cannot be written, --output DIR takes the results");
}

TEST_F(EvaluateCommand, TrainGetsALossAndNoRouge) {
  const ProgramRun got = expect_success(run_program("evaluate " + run() + " --split train --limit 4"));
  EXPECT_HAS(got.out, "no ROUGE: " + file("data/train.h5") + " holds no texts");
  const json scores = json::parse(result("step_00000007-train-limit4/scores.json"));
  EXPECT_EQ(scores.at("split"), "train");
  EXPECT_EQ(scores.at("examples"), 4);
  EXPECT_GT(scores.at("split_examples"), 1000);
  EXPECT_GT(scores.at("loss"), 5.0);
  EXPECT_TRUE(scores.at("rouge1").is_null());
  EXPECT_EQ(result("step_00000007-train-limit4/predictions.jsonl"), "");
}

// evaluate and summarize say how many documents lose their end to leave room for the summary.
TEST_F(EvaluateCommand, SaysHowManyDocumentsWereCut) {
  constexpr int64_t kContext = 256, kNewTokens = 150, kExamples = 6;
  const TokenDataset dataset(scratch_ / "data/test.h5");
  std::vector<int64_t> surplus;
  std::string documents;
  int64_t cut = 0;
  for (int64_t i = 0; i < kExamples; ++i) {
    const int64_t prompt = dataset.target_begin(i) - dataset.example_begin(i);
    surplus.push_back(std::max<int64_t>(prompt - (kContext - kNewTokens), 0));
    if (surplus.back() > 0) ++cut;
    // The first two documents stay whole.
    documents +=
        json{{"document", i < 2 ? "Short." : dataset.text(i, 1)[0].document}, {"cut_tokens", 1}}.dump() +
        "\n";
  }
  ASSERT_GT(cut, 2);
  const ProgramRun got = expect_success(run_program(
      fmt::format("evaluate {} --json --limit {} --max-new-tokens {}", run(), kExamples, kNewTokens)));
  EXPECT_EQ(json::parse(got.out).at("rouge_cut_documents"), cut);
  EXPECT_HAS(got.err, fmt::format("ROUGE {} of {} (document and 150 new tokens)", cut, kExamples));

  const ProgramRun summarized =
      expect_success(run_program(fmt::format("summarize {} --batch-size 4 --max-new-tokens {} --input {}",
                                             run(), kNewTokens, write("documents.jsonl", documents))));
  const std::vector<json> lines = lines_of(summarized.out);
  ASSERT_EQ(std::ssize(lines), kExamples);
  int64_t cut_lines = 0;
  for (int64_t i = 0; i < kExamples; ++i) {
    const int64_t expected = i < 2 ? 0 : surplus[static_cast<size_t>(i)];
    EXPECT_EQ(lines[static_cast<size_t>(i)].value("cut_tokens", int64_t{0}), expected) << i;
    if (expected > 0) ++cut_lines;
  }
  EXPECT_FALSE(lines[0].contains("cut_tokens"));
  EXPECT_HAS(summarized.err,
             fmt::format("{} of 6 documents cut to fit the context of 256 tokens", cut_lines));
}

TEST_F(EvaluateCommand, RefusesWhatDoesNotFit) {
  EXPECT_EQ(run_program("evaluate " + file("absent")).exit_code, 64);
  EXPECT_EQ(run_program("evaluate " + run() + " --checkpoint 8").exit_code, 64);
  EXPECT_EQ(run_program("evaluate " + run() + " --checkpoint newest").exit_code, 64);
  EXPECT_EQ(run_program("evaluate " + run() + " --split holdout").exit_code, 64);
  expect_exit(run_program("evaluate " + run() + " --data " + file("absent")), 65,
              "there is no test.h5\" hint=\"--data is");
  const ProgramRun slip = run_program("evaluate " + run() + " --data " + file("dta"));
  EXPECT_HAS(slip.err, "did you mean --data " + file("data") + "?");
  expect_exit(run_program("evaluate " + run() + " --limit 1 --output " + file("data")), 64,
              "holds no evaluation, and has prepare.json, ");
  EXPECT_EQ(run_program("evaluate " + run() + " --max-new-tokens 4000").exit_code, 64);
  expect_success(run_program("prepare --source synthetic --examples 300 --seed 3 --vocab-size 380 --output " +
                             file("other_tokenizer")));
  EXPECT_EQ(run_program("evaluate " + run() + " --data " + file("other_tokenizer")).exit_code, 65);
}

TEST_F(EvaluateCommand, ADamagedCheckpointComesWithAHint) {
  const std::string checkpoint = run() + "/checkpoints/step_00000007";
  const auto expect_hint = [&] {
    expect_exit(run_program("evaluate " + run() + " --checkpoint best"), 74,
                "hint=\"ripstop checkpoint verify " + checkpoint + " lists the damage");
  };
  const std::string manifest = read_bytes(fs::path(checkpoint) / "manifest.json");
  make_older(checkpoint);
  expect_exit(run_program("evaluate " + run()), 74, "was written by an older ripstop");
  write_bytes(fs::path(checkpoint) / "manifest.json", manifest);
  std::string bytes = read_bytes(fs::path(checkpoint) / "rank_00000.h5");
  // The changed bytes include weights. Moments are not read.
  for (size_t at = bytes.size() / 32; at < bytes.size(); at += bytes.size() / 16) bytes[at] ^= 1;
  write_bytes(fs::path(checkpoint) / "rank_00000.h5", bytes);
  expect_hint();
  write_bytes(fs::path(checkpoint) / "manifest.json", "{");
  expect_hint();
}

TEST_F(EvaluateCommand, WritesAsTheRunsConfigAsks) {
  write_run(scratch_ / "beams", scratch_ / "data", "num_beams = 3\nno_repeat_ngram_size = 3\n");
  expect_success(run_program("evaluate " + file("beams") + " --limit 3"));
  const std::string results = file("beams") + "/evaluation/step_00000007-test-limit3/";
  EXPECT_HAS(read_bytes(results + "settings.json"), "\"num_beams\": 3");
  // Options have the same effect on a run with greedy settings.
  expect_success(run_program("evaluate " + run() + " --limit 3 --num-beams 3 --no-repeat-ngram-size 3"));
  EXPECT_EQ(lines_of(result("step_00000007-test-limit3-beams3-no_repeat_ngram_size3/predictions.jsonl")),
            lines_of(read_bytes(results + "predictions.jsonl")));
  expect_success(run_program("evaluate " + run() + " --limit 3 generation.num_beams=1"));
  EXPECT_NE(lines_of(result("step_00000007-test-limit3/predictions.jsonl")),
            lines_of(read_bytes(results + "predictions.jsonl")));
}

// An evaluation that resumes, and summarize, write the summaries of an evaluation without a stop.
TEST_F(EvaluateCommand, SamplesGoOnAsTheyBegan) {
  const std::string sampling = " --do-sample --temperature 1.3 --top-k 40 --top-p 0.9 --seed 5";
  const std::string name = "-sample-temperature1.3-top_k40-top_p0.9-seed5/predictions.jsonl";
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 2" + sampling).exit_code, 0);
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 6 --batch-size 2" + sampling).exit_code, 0);
  ASSERT_EQ(run_program("evaluate " + run() + " --limit 6 --output " + file("at-once") + sampling).exit_code,
            0);
  const auto lines = lines_of(result("step_00000007-test-limit6" + name));
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines_of(read_bytes(file("at-once") + "/predictions.jsonl")), lines);
  ASSERT_EQ(
      run_program("evaluate " + run() + " --limit 6 --output " + file("other") + sampling + "6").exit_code,
      0);
  EXPECT_NE(lines_of(read_bytes(file("other") + "/predictions.jsonl")), lines) << "seed 56";
}

TEST_F(EvaluateCommand, NoKeyOnTheCommandLineIsIgnored) {
  const std::string input = write("one.jsonl", "{\"document\": \"one\"}\n");
  for (const std::string& command :
       {"evaluate " + run() + " --limit 1", "summarize " + run() + " --input " + input}) {
    const ProgramRun noted = run_program(command + " --length-penalty 2 generation.top_k=5");
    EXPECT_EQ(noted.exit_code, 0) << command;
    EXPECT_HAS(noted.err, "note: generation.length_penalty = 2.0 changes nothing");
    EXPECT_HAS(noted.err, "note: generation.top_k = 5 changes nothing");
    expect_exit(run_program(command + " generation.validate_examples=3"), 64, "evaluate --limit");
    EXPECT_EQ(run_program(command + " precision.compute=bfloat16").exit_code, 64) << command;
    for (const std::string twice :
         {"--max-new-tokens 5 generation.max_new_tokens=6", "--num-beams 5 generation.num_beams=6",
          "--do-sample generation.do_sample=false"}) {
      expect_exit(run_program(command + " " + twice), 64, "are one setting");
    }
    for (const std::string wrong : {"--num-beams 0", "--num-beams four", "--temperature 0", "--top-p 1.5",
                                    "--num-beams 2 --do-sample", "--min-new-tokens 13", "--max-new-tokens 0"})
      EXPECT_EQ(run_program(command + " " + wrong).exit_code, 64) << command << " " << wrong;
  }
}

// An evaluation that is stopped again and again keeps its parts, and ends with the scores of one without a
// stop.
TEST_F(EvaluateCommand, GoesOnAfterItsTimeLimit) {
  const std::string command = "evaluate " + run() + " --batch-size 2 --json --output ";
  const ProgramRun whole = expect_success(run_program(command + file("whole")));
  const fs::path cut = file("cut");
  // Seconds from now, less than the margin: each start stops as soon as it has done a part.
  const std::string soon = "RIPSTOP_DEADLINE=$(($(date +%s) + 19))";
  const auto count = [&] {
    return fs::exists(cut / "predictions.jsonl") ? std::ssize(lines_of(read_bytes(cut / "predictions.jsonl")))
                                                 : 0;
  };
  int64_t sequences = 0, starts = 0;
  for (bool complete = false; count() == 0 && starts < 1000; ++starts) {
    const ProgramRun got = run_program(command + cut.string(), soon);
    ASSERT_EQ(got.exit_code, 75) << got.err;
    EXPECT_EQ(got.out, "") << "--json prints one document or nothing";
    EXPECT_HAS(got.err, "stopped before its time limit");
    EXPECT_FALSE(fs::exists(cut / "scores.json"));
    const json loss = json::parse(read_bytes(cut / "loss.json"));
    EXPECT_TRUE(complete || loss.at("sequences") > sequences) << "each start adds a part";
    sequences = loss.at("sequences");
    complete = loss.at("complete");
  }
  EXPECT_GT(starts, 1) << "the loss alone has several parts";
  const int64_t parts = count();
  EXPECT_EQ(json::parse(read_bytes(cut / "loss.json")).at("complete"), true);
  const ProgramRun last = expect_success(run_program(command + cut.string()));
  EXPECT_HAS(last.err, fmt::format("summaries there already: {} of", parts));
  EXPECT_EQ(read_bytes(cut / "scores.json"), read_bytes(fs::path(file("whole")) / "scores.json"));
  EXPECT_EQ(read_bytes(cut / "predictions.jsonl"), read_bytes(fs::path(file("whole")) / "predictions.jsonl"));
  EXPECT_FALSE(fs::exists(cut / "loss.json")) << "it is in scores.json";
}

// SIGTERM and SIGUSR1 stop an evaluation alike.
TEST_F(EvaluateCommand, ASignalStopsIt) {
  for (const char* signal : {"USR1", "TERM", "INT"}) {
    const std::string output = file(signal);
    // `exec`, so that the process id is that of the program. It is stopped while it writes long summaries.
    write("start.sh", "ulimit -c 0\n'" + ripstop_program() + "' evaluate " + run() +
                          " --min-new-tokens 100 --max-new-tokens 100 --num-beams 8 --output " + output +
                          " >" + output + ".out 2>&1 &\nwhile ! [ -s " + output +
                          "/settings.json ]; do sleep 0.01; done\nkill -" + signal + " $!\nwait $!\n");
    const int status = std::system(("bash -c 'set -m; . " + file("start.sh") + "'").c_str());
    EXPECT_EQ(WEXITSTATUS(status), 75) << signal << ": " << read_bytes(output + ".out");
    EXPECT_HAS(read_bytes(output + ".out"), "stopped on a signal");
  }
}

}  // namespace
}  // namespace ripstop
