// `ripstop report`: a page from the files of runs alone, and event files made afterwards.
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <regex>

#include "data/process/shell_word.h"
#include "tests/train/commands/run_program.h"
#include "tests/train/config/small_config.h"
#include "train/checkpoint/run_lock.h"
#include "train/page/html_text.h"
#include "train/page/run_record.h"
#include "train/report/metrics.h"
#include "train/report/trace_file.h"

namespace ripstop {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

constexpr const char* kHostile = "<script>alert(1)</script>\"'\xe2\x80\xae&\xff";

class Report : public testing::Test {
 protected:
  struct Likes {
    int64_t steps = 40;
    int64_t diverges_at = 0;
    std::string rate = "1e-3";
    std::string text = "the summary";
    int exit_code = 0;
  };

  fs::path write_run(const std::string& name, const Likes& likes) const {
    const fs::path run = scratch_ / name;
    fs::create_directories(run);
    std::string config = small_config::kSmallest;
    write_bytes(run / "config.toml", std::regex_replace(config, std::regex("learning_rate = [^\n]*"),
                                                        "learning_rate = " + likes.rate));
    MetricsFile file(run / "metrics.jsonl");
    StartEvent start;
    start.steps = likes.steps;
    start.argv = {"/opt/somebody/ripstop", "train", "data.directory=/data/somebody/xsum",
                  "data.directories=[\"/data/somebody/one\", \"/opt/two/\"]",
                  "data.directories=six,/opt/seven"};
    start.hosts = {"gpu-node-17"};
    start.parameters = 1'234'000;
    start.data.kind = "summary";
    start.data.examples = 786;
    file.write(start);
    for (int64_t step = 1; step <= likes.steps; ++step) {
      StepMetrics metrics;
      metrics.step = step;
      metrics.loss = likes.diverges_at != 0 && step >= likes.diverges_at ? std::nan("") : 5.0 / step;
      metrics.step_seconds = 0.5;
      metrics.tokens_per_second = 1000;
      metrics.tokens_seen = step * 500;
      metrics.communication_exposed_seconds.tensor = 0.125;
      file.write(metrics);
    }
    ValidationEvent validation;
    validation.step = likes.steps;
    validation.loss = 2.75;
    validation.rouge1 = validation.rouge2 = validation.rougeL = 0.25;
    validation.samples = {{{likes.text, likes.text, likes.text}}};
    file.write(validation);
    WarningEvent warning;
    warning.text = likes.text;
    file.write(warning);
    EndEvent end;
    end.exit_code = likes.exit_code;
    end.account = RunAccount{.node_hours = 1.5, .tokens = 744'000, .kwh = 0.62, .gpu_kwh = {}};
    if (likes.exit_code >= 0) file.write(end);
    return run;
  }

  std::string page_of(const std::string& arguments) const {
    const std::string output = (scratch_ / "out.html").string();
    expect_success(run_program("report --output " + output + " " + arguments));
    return read_bytes(output);
  }

  ScratchDirectory scratch_;
};

TEST_F(Report, ShowsSeveralRunsAndWhatDiffers) {
  write_run("a", {});
  write_run("b", {.diverges_at = 30, .rate = "5e-2", .exit_code = 77});
  write_run("c", {.steps = 20, .exit_code = -1});
  Io io;
  const RunLock lock(io, scratch_ / "c");
  const std::string page = page_of(scratch_.path().string());
  EXPECT_TRUE(has(page, "done: 40 of 40 steps in 20s"));
  EXPECT_TRUE(has(page, "failed (77), diverged"));
  EXPECT_TRUE(has(page, "The loss or the gradient was not finite in 11 steps, first at step 30."));
  EXPECT_TRUE(has(page, ">diverged at step 30</text>"));
  EXPECT_TRUE(has(page, "running: 20 of 20 steps"));
  EXPECT_TRUE(has(page, "<th>node-hours, energy</th><td>1.5 node-hours, 0.62 kWh (413.3 W a node, "));
  EXPECT_TRUE(has(page, "<th>optimizer.learning_rate</th><td>0.001</td><td>0.05</td><td>0.001</td>"));
  EXPECT_TRUE(has(page, "<h3>Exposed communication: tensor</h3>"));
  EXPECT_FALSE(has(page, "<h3>Exposed communication: fsdp</h3>")) << "nothing was exposed";
  EXPECT_TRUE(has(page, "<mark>the summary</mark>"));
  EXPECT_TRUE(has(page, "exposed communication, tensor</th><td>5s (25.0%)</td>"));
}

TEST_F(Report, AWaitForASaveCountsOnce) {
  const fs::path run = write_run("saves", {});
  auto file = std::make_unique<MetricsFile>(run / "metrics.jsonl");
  StepMetrics step;
  step.step = 41;
  step.step_seconds = 10;
  step.save_wait_seconds = 4;
  file->write(step);
  file->write(CheckpointEvent{.step = 41, .path = "x", .bytes = 1, .seconds = 8, .waited_seconds = 6});
  file.reset();  // all is written
  EXPECT_TRUE(has(page_of(run.string()), "waiting for saves</th><td>6s (18.8%)</td>")) << "of 20 + 6 + 6 s";
}

// A set without targets has no curve.
TEST_F(Report, EachSetHasACurve) {
  const fs::path run = write_run("mixed", {});
  EXPECT_FALSE(has(page_of(run.string()), "<h3>Loss of ")) << "the run has one data set";
  std::string config = read_bytes(run / "config.toml");
  config = std::regex_replace(config, std::regex("directory = \"[^\"]*\"\n(?=sequence_length)"),
                              "directories = [\"/sets/one\", \"/sets/two <b>\", \"/sets/none\"]\n");
  write_bytes(run / "config.toml", config);
  auto file = std::make_unique<MetricsFile>(run / "metrics.jsonl");
  StepMetrics step;
  step.step = 41;
  step.sets = {{.tokens = 5, .loss = 2.25}, {}, {.tokens = 0, .loss = 3.5}};
  file->write(step);
  ValidationEvent validation;
  validation.step = 41;
  validation.sets.emplace(3);
  validation.sets->at(1).loss = 17.125;
  validation.sets->at(1).target_count = 9;
  validation.sets->at(2).loss = 3.5;
  file->write(validation);
  file.reset();  // all is written
  const std::string page = page_of(run.string());
  EXPECT_TRUE(has(page, "<h3>Loss of one</h3>"));
  EXPECT_TRUE(has(page, ">2.25</tspan>"));
  EXPECT_TRUE(has(page, "<h3>Loss of two &#60;b&#62;</h3>")) << "it was validated alone";
  const std::string chart = page.substr(page.find("<h3>Loss of two"));
  EXPECT_TRUE(has(chart.substr(0, chart.find("</figure>")), "<circle class=\"c0\""));
  EXPECT_FALSE(has(page, "<h3>Loss of none</h3>"));
  write_bytes(run / "evaluation/step_1-test/scores.json",
              R"({"step": 1, "split": "test", "data": "/sets/two <b>", "examples": 1})");
  EXPECT_TRUE(has(page_of(run.string()), "<td>test of <bdi>/sets/two &#60;b&#62;</bdi></td>"));
  const std::string anonymous = page_of("--anonymous " + run.string());
  EXPECT_TRUE(has(anonymous, "<h3>Loss of one</h3>"));
  EXPECT_TRUE(has(anonymous, "<td>test of <bdi>two &#60;b&#62;</bdi></td>"));
}

// The page, whatever stands in a file of a run, has no script and asks for nothing.
TEST_F(Report, TextsOfFilesStayText) {
  const fs::path run = write_run(kHostile, {.text = kHostile + std::string(1 << 20, 'x')});
  write_bytes(run / "evaluation/step_1-test/scores.json",
              R"({"step": 1, "split": "<script>", "examples": 1})");
  const std::string page = page_of(shell_word(run.string()));
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "\xe2\x80\xae"));
  EXPECT_FALSE(has(page, "\xff"));
  EXPECT_TRUE(has(page, html(kHostile)));
  EXPECT_LT(page.size(), 200'000U);
  EXPECT_FALSE(std::regex_search(page, std::regex("(src|href)=\"[^#d]|url\\(|@import|https?:")));
  EXPECT_TRUE(has(page, "default-src 'none'; style-src 'unsafe-inline'; img-src data:"));
}

TEST_F(Report, LeavesOutWhatItIsTold) {
  const std::string run = write_run("a", {.text = "a secret"}).string();
  std::string config = read_bytes(run + "/config.toml");
  config.insert(config.find("[run]") + 5, "\ncontinue_from = \"/mnt/team/old/checkpoints/step_8\"");
  const size_t data = config.find("directory = \"data/a\"");
  config.replace(data, 20, "directories = [\"/data/somebody/three\", \"/opt/four\"]");
  write_bytes(run + "/config.toml", config);
  EXPECT_TRUE(has(page_of(run), "/mnt/team"));
  EXPECT_TRUE(has(page_of(run), "a secret"));
  EXPECT_TRUE(has(page_of(run), "gpu-node-17"));
  EXPECT_FALSE(has(page_of("--no-text " + run), "<mark>a secret"));
  const std::string page = page_of("--anonymous " + run);
  for (const char* part : {"a secret", "gpu-node-17", "somebody", "/data", "/opt", "/mnt"})
    EXPECT_FALSE(has(page, part)) << part;
  EXPECT_TRUE(has(page, "node 1"));
  EXPECT_TRUE(has(page, "data.directory=xsum"));
  EXPECT_TRUE(has(page, html("data.directories=[\"one\", \"two/\"]")));
  EXPECT_TRUE(has(page, "data.directories=six,seven"));
  EXPECT_TRUE(has(page, "<bdi>three, four</bdi>"));
  EXPECT_TRUE(has(page, "<bdi>step_8</bdi>, continued"));
  EXPECT_FALSE(has(page, scratch_.path().string()));
}

TEST_F(Report, HidesDirectoriesAndTheOwnersOfAllRuns) {
  for (const auto& [path, hidden] :
       {std::pair("/mnt/li/lr=0.1/run", "run"),
        std::pair("data.directory=~/lr=0.1/li", "data.directory=user"),
        std::pair("key=[\"/a=b/c\", \"/d/e\"]", "key=[\"c\", \"e\"]"), std::pair("/mnt/[a,b]/c,d", "c,d"),
        std::pair("li/validation-li_of_bo.li2", "user/validation-user_of_user.user2")}) {
    std::vector<RunRecord> runs(1, RunRecord(8));
    runs[0].path = path;
    make_anonymous(runs, {"bo", "li"});
    EXPECT_EQ(runs[0].path, hidden);
  }
  const std::string own = write_run("a", {}).string(), other = write_run("of-daemon", {}).string();
  constexpr uid_t kDaemon = 1;
  const bool is_given = ::chown(other.c_str(), kDaemon, kDaemon) == 0;  // only root may do it
  EXPECT_FALSE(is_given && has(page_of("--anonymous " + own + " " + other), "daemon"));
}

TEST_F(Report, AnEvaluationThatCannotBeReadIsANote) {
  const fs::path run = write_run("a", {});
  for (const char* loop : {"x", "y/scores.json", "z/predictions.jsonl"}) {
    const fs::path path = run / "evaluation" / loop;
    write_bytes(path.parent_path() / "scores.json", R"({"step": 1, "split": "test", "examples": 1})");
    fs::remove(path);
    fs::create_symlink(path.filename(), path);
  }
  EXPECT_TRUE(has(page_of(run.string()), "evaluation/x/scores.json: cannot look at it"));
}

// A million steps do not fit: a page has at most 640 columns.
TEST_F(Report, ALongRunKeepsItsSpikesInASmallPage) {
  const fs::path run = scratch_ / "long";
  fs::create_directories(run);
  std::string lines;
  for (int64_t step = 1; step <= 20'000; ++step)
    lines += fmt::format("{{\"event\":\"step\",\"step\":{},\"loss\":{},\"step_seconds\":1}}\n", step,
                         step == 12'345 ? 98765 : 2);
  write_bytes(run / "metrics.jsonl", lines + "no event\n");
  const std::string page = page_of(run.string());
  EXPECT_TRUE(has(page, "98.77k")) << "the spike is in the numbers below the pointer";
  EXPECT_TRUE(has(page, "1 line is no event, line 20001: no JSON"));
  EXPECT_TRUE(has(page, "there is no config.toml"));
  EXPECT_LT(page.size(), 400'000U);
}

// A log from outside may hold any numbers: losses that hardly differ, and the greatest and least.
TEST_F(Report, AnyNumbersGiveAPage) {
  for (const char* losses : {"1,1.0000000000000002", "1e308,-1e308", "5e-324,1e300", "0,-0.0", "null,null"}) {
    std::string lines, text = losses;
    const size_t comma = text.find(',');
    for (const auto& [step, loss] :
         {std::pair(int64_t{1} << 60, text.substr(0, comma)), std::pair(int64_t{-5}, text.substr(comma + 1))})
      lines += fmt::format(
          "{{\"event\":\"step\",\"step\":{0},\"loss\":{1},\"grad_norm\":{1},\"step_seconds\":{1},"
          "\"peak_memory_bytes\":{0},\"time\":1e300}}\n"
          "{{\"event\":\"hosts\",\"step\":{0},\"steps\":{0},\"hosts\":[\"a\"],"
          "\"compute_seconds\":[1],\"wait_seconds\":[1]}}\n",
          step, loss);
    write_bytes(scratch_ / "run/metrics.jsonl", lines);
    const ProgramRun run = run_program("report --output " + (scratch_ / "out.html").string() + " " +
                                       (scratch_ / "run").string());
    EXPECT_EQ(run.exit_code, 0) << losses << run.err;
  }
}

// Runs are called by the ends of their paths, and the first lines say what they train.
TEST_F(Report, SaysWhatWasTrained) {
  const std::string path = write_run("folder/a", {}).string();
  const std::string one = page_of(path);
  EXPECT_TRUE(has(one, "<h1>Training report: folder/a</h1>"));
  EXPECT_TRUE(has(one, "<th>directory</th><td>" + path + "</td>"));
  EXPECT_TRUE(
      has(one,
          "<p>What is trained: a model of 1.23M weights, from random ones, on 786 documents with summaries "
          "of <bdi>"));
  write_run("folder/b", {});
  const std::string two = page_of((scratch_ / "folder").string());
  EXPECT_TRUE(has(two, "<h1>Training report: a, b</h1>"));
  const std::string hidden = page_of("--anonymous " + path);
  EXPECT_TRUE(has(hidden, "<h1>Training report: a</h1>"));
  for (const char* title :
       {"Curves", "Where the time went", "Plan beside measured", "Restarts and warnings", "Origin"}) {
    EXPECT_TRUE(has(one, std::string("\">") + title + "</a>")) << title;
    EXPECT_TRUE(has(one, std::string("<h2>") + title + "</h2>")) << title;
  }
}

TEST_F(Report, AStartOfADoneRunIsNoRestart) {
  const fs::path run = write_run("a", {});
  MetricsFile file(run / "metrics.jsonl");
  StartEvent start;
  start.step = start.steps = 40;
  start.parameters = 99;
  start.data.kind = "conversation";
  file.write(start);
  EndEvent end;
  end.exit_code = 3;
  file.write(end);
  const std::string page = page_of(run.string());
  EXPECT_TRUE(has(page, "never restarted"));
  EXPECT_TRUE(has(page, "done: 40 of 40 steps")) << "the end of the start before";
  EXPECT_TRUE(has(page, "1.23M weights, from random ones, on 786 documents with summaries"));
  EXPECT_FALSE(has(page, "changed on resume"));
  start.step = 20;
  start.changes = {{.key = "optimizer.learning_rate", .old_value = "0.01", .new_value = "0.005"}};
  file.write(start);
  EXPECT_TRUE(has(page_of(run.string()), "It was restarted 1 time."));
  EXPECT_TRUE(has(page_of(run.string()), "from step 21 on optimizer.learning_rate: 0.01 -"));
}

TEST_F(Report, ARunWithoutAStepSaysSo) {
  write_bytes(scratch_ / "none/metrics.jsonl", R"({"event":"start","step":0,"steps":100,"time":1.7e9})"
                                               "\n");
  const std::string page = page_of((scratch_ / "none").string());
  EXPECT_TRUE(has(page, "interrupted: no step of 100 was made."));
  EXPECT_TRUE(has(page, "<p class=\"note\">No step was made.</p>"));
  EXPECT_FALSE(has(page, "Where the time went"));
}

TEST_F(Report, APathInARunIsNoRun) {
  const fs::path run = write_run("a", {});
  write_bytes(run / "checkpoints/step_00000001/rank_0.h5", "");
  for (const char* inside : {"checkpoints", "checkpoints/step_00000001", "metrics.jsonl"}) {
    const ProgramRun refused = run_program("report " + (run / inside).string());
    EXPECT_EQ(refused.exit_code, 64);
    EXPECT_TRUE(has(refused.err, "it lies in one: give " + run.string())) << refused.err;
  }
}

TEST_F(Report, ReplacesReportsAlone) {
  const std::string run = write_run("a", {}).string();
  const std::string output = (scratch_ / "notes.html").string();
  write_bytes(output, "<p>mine");
  const ProgramRun refused = run_program("report --output " + output + " " + run);
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_TRUE(has(refused.err, "exists, and is no report of ripstop")) << refused.err;
  EXPECT_EQ(read_bytes(output), "<p>mine");
  page_of(run);
  EXPECT_TRUE(has(page_of(run), "done"));
}

TEST_F(Report, MakesEventFilesAfterwards) {
  const std::string run = write_run("a", {}).string();
  const ProgramRun made = expect_success(run_program("report --tensorboard " + run));
  const std::string bytes = read_bytes(made.out.substr(0, made.out.find('\n')));
  EXPECT_TRUE(has(bytes, "brain.Event:2"));
  EXPECT_TRUE(has(bytes, "train/loss"));
  EXPECT_TRUE(has(bytes, "_hparams_/session_end_info"));
  const ProgramRun again = run_program("report --tensorboard " + run);
  EXPECT_EQ(again.exit_code, 64) << "TensorBoard would show all steps twice";
  EXPECT_TRUE(has(again.err, "has event files"));
}

TEST_F(Report, MergesTheTracesOfARun) {
  const fs::path run = write_run("a", {});
  const std::string merged = (scratch_ / "trace.json").string();
  const auto report = [&](const std::string& more) { return run_program("report --trace " + merged + more); };
  const auto refused = [&](const std::string& more, int code, const std::string& what) {
    const ProgramRun answer = report(more);
    EXPECT_EQ(answer.exit_code, code) << more;
    EXPECT_TRUE(has(answer.err, what)) << answer.err;
  };
  refused(" " + run.string(), 65, "trace has no trace");
  remove_traces(posix_io(), run / kTraceFolder);
  for (int64_t rank = 0; rank < 2; ++rank) {
    const std::vector<BarrierTimes> one(1);
    write_trace(posix_io(), run / kTraceFolder, {.rank = rank, .ranks = 2}, RangeRecorder(),
                NodeClock(one, one, 0));
  }
  const ProgramRun whole = expect_success(report(" " + run.string()));
  EXPECT_TRUE(has(whole.out, "2 ranks; open it")) << whole.out;
  EXPECT_TRUE(read_bytes(merged).starts_with(kTraceBegin));
  fs::remove(run / kTraceFolder / "rank_00001.json");
  const ProgramRun part = report(" " + run.string());  // replaces the file
  EXPECT_EQ(part.exit_code, 0) << part.err;
  EXPECT_TRUE(has(part.err, "left out: rank_00001.json is missing")) << part.err;
  refused(" --utc " + run.string(), 64, "drop these options");
  refused(" " + run.string() + " " + write_run("b", {}).string(), 64, "too many for one trace");
  write_bytes(merged, "mine");
  refused(" " + run.string(), 64, "exists, and is no trace of ripstop");
}

}  // namespace
}  // namespace ripstop
