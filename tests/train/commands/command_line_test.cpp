#include "train/commands/command_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/train/commands/run_program.h"
#include "train/checkpoint/run_lock.h"
#include "train/commands/fatal_line.h"
#include "train/machine/version.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Expects exactly one FATAL line of the known shape, and nothing on stdout.
void expect_refused(const ProgramRun& run, int code, const std::string& what, const std::string& hint = "") {
  EXPECT_EQ(run.exit_code, code) << run.err;
  EXPECT_EQ(run.out, "");
  const std::regex shape(
      "FATAL code=" + std::to_string(code) +
      " rank=[0-9]+ step=(-|[0-9]+) what=\"([^\"\\\\]|\\\\.)*\"( hint=\"([^\"\\\\]|\\\\.)+\")?\n");
  EXPECT_TRUE(std::regex_match(run.err, shape)) << run.err;
  EXPECT_TRUE(has(run.err, what)) << run.err;
  EXPECT_TRUE(has(run.err, hint)) << run.err;
}

std::vector<std::string> listed_verbs() {
  std::vector<std::string> verbs;
  std::istringstream help(run_program("--help").out);
  const std::regex row("  ([a-z-]+) {2,}[^ ].*");
  std::smatch match;
  for (std::string line; std::getline(help, line);)
    if (std::regex_match(line, match, row)) verbs.push_back(match[1]);
  return verbs;
}

TEST(CommandLine, EveryVerbHasHelpWithAnExample) {
  const std::vector<std::string> verbs = listed_verbs();
  EXPECT_GE(verbs.size(), 3u);
  for (const std::string& verb : verbs) {
    const ProgramRun run = run_program(verb + " --help");
    EXPECT_EQ(run.exit_code, 0) << verb;
    EXPECT_TRUE(has(run.out, "Usage: ripstop " + verb)) << verb << run.out;
    EXPECT_TRUE(has(run.out, "Example:\n  ")) << verb;
    EXPECT_TRUE(has(run.out, "ripstop " + verb + " ")) << verb;
    EXPECT_EQ(run.err, "") << verb;
  }
}

TEST(CommandLine, EveryVerbRefusesOptionsItDoesNotKnow) {
  for (const std::string& verb : listed_verbs()) {
    const ProgramRun run = run_program(verb + " --no-such-option-anywhere x");
    EXPECT_EQ(run.exit_code, 64) << verb << run.err;
    EXPECT_TRUE(has(run.err, "FATAL code=64")) << verb;
    EXPECT_EQ(run.out, "") << verb;
  }
}

TEST(CommandLine, VersionNamesTheCommit) {
  const ProgramRun run = run_program("--version");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.out, "ripstop " + std::string(version()) + " (" + std::string(git_commit()) + ")\n");
}

TEST(CommandLine, WrongVerbsAreRefused) {
  expect_refused(run_program(""), 64, "a verb is required", "ripstop --help");
  expect_refused(run_program("statsu runs"), 64, "unknown verb 'statsu'", "did you mean 'status'?");
  expect_refused(run_program("qqqqqqqqqq"), 64, "unknown verb 'qqqqqqqqqq'", "ripstop --help");
  expect_refused(run_program("'a\"b\\c\nd'"), 64, "unknown verb 'a\\\"b\\\\c\\nd'");
  expect_refused(run_program("--wrong"), 64, "unknown verb '--wrong'", "ripstop --help");
  // The first wrong word is named, not the verb after it.
  expect_refused(run_program("statsu train"), 64, "unknown verb 'statsu'", "did you mean 'status'?");
  expect_refused(run_program("checkpoint"), 64, "a verb is required", "ripstop checkpoint --help");
  expect_refused(run_program("checkpoint verfy run"), 64, "unknown verb 'verfy'", "did you mean 'verify'?");
  // Words of other programs.
  expect_refused(run_program("eval run"), 64, "unknown verb 'eval'", "did you mean 'evaluate'?");
  expect_refused(run_program("generate run"), 64, "unknown verb 'generate'", "did you mean 'summarize'?");
  expect_refused(run_program("checkpoint show run"), 64, "unknown verb 'show'", "did you mean 'inspect'?");
}

// Directories may be called like verbs.
TEST(CommandLine, ArgumentsMayBeCalledLikeVerbs) {
  expect_refused(run_program("status no-run train"), 64, "no-run is not a directory");
  expect_refused(run_program("checkpoint list verify"), 74, "verify: no such directory");
  expect_refused(run_program("checkpoint list doctor"), 74, "doctor: no such directory");
}

TEST(CommandLine, HelpListsEveryVerbOnce) {
  EXPECT_EQ(listed_verbs(), (std::vector<std::string>{"checkpoint", "doctor", "evaluate", "plan", "prepare",
                                                      "rouge", "status", "summarize", "train"}));
  const std::string help = run_program("--help").out;
  EXPECT_EQ(run_program("-h").out, help);
  EXPECT_EQ(run_program("help").out, help);
}

TEST(CommandLine, WrongOptionsNameTheNearest) {
  expect_refused(run_program("doctor --jsno"), 64, "--jsno", "did you mean --json?");
  expect_refused(run_program("status"), 64, "DIR", "ripstop status --help");
  expect_refused(run_program("doctor surplus"), 64, "surplus");
  expect_refused(run_program("checkpoint verify x --jsn"), 64, "--jsn", "did you mean --json?");
  expect_refused(run_program("checkpoint verify"), 64, "RUN", "ripstop checkpoint verify --help");
  expect_refused(run_program("evaluate run --limit 0"), 64, "--limit: '0' is not an integer above 0");
  expect_refused(run_program("plan run.toml --nodes 0"), 64, "--nodes: Value 0 not in range 1 to");
}

// As other trainers have them: every key of the config is an option there.
TEST(CommandLine, KeysGivenAsOptionsAreShownAsOverrides) {
  expect_refused(run_program("train c.toml --learning_rate 1e-3"), 64,
                 "ripstop train has no option --learning_rate",
                 "overrides are section.key=value: optimizer.learning_rate=1e-3");
  expect_refused(run_program("plan c.toml --optimizer.lr=1e-3 --learning-rate 2 --max_steps --jsno"), 64,
                 "has no options --optimizer.lr, --learning-rate, --max_steps, --jsno",
                 "did you mean --json? overrides are section.key=value: optimizer.learning_rate=1e-3 "
                 "optimizer.learning_rate=2 train.steps=...");
  expect_refused(run_program("summarize run --num-beams 4"), 64, "no option --num-beams",
                 "generation.num_beams=4");
  expect_refused(run_program("train c.toml --quite_unknown 1"), 64, "has no option --quite_unknown",
                 "ripstop train --help");
  // A verb without overrides has none to offer.
  expect_refused(run_program("status --learning_rate 1e-3 run"), 64, "no option --learning_rate",
                 "ripstop status --help");
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAStorageError) {
  const int status = std::system("'" RIPSTOP_PROGRAM "' --version >/dev/full 2>/dev/null");
  EXPECT_EQ(WEXITSTATUS(status), 74);
}

TEST(CommandLine, RankComesFromTheLauncher) {
  const std::string unreadable = "status /no/such/folder";
  EXPECT_TRUE(has(run_program(unreadable, "OMPI_COMM_WORLD_RANK=3").err, " rank=3 "));
  EXPECT_TRUE(has(run_program(unreadable, "PMI_RANK=2").err, " rank=2 "));
  EXPECT_TRUE(has(run_program(unreadable, "SLURM_PROCID=5").err, " rank=5 "));
  EXPECT_TRUE(has(run_program(unreadable, "SLURM_PROCID=x").err, " rank=0 "));
}

TEST(CommandLine, OneRankTellsWhatIsWrongWithTheWords) {
  for (const char* wrong :
       {"nothing", "train", "train config.toml --nodes", "evaluate --split holdout run"}) {
    EXPECT_TRUE(has(run_program(wrong, "OMPI_COMM_WORLD_RANK=0").err, "FATAL code=64 rank=0 ")) << wrong;
    const ProgramRun other = run_program(wrong, "OMPI_COMM_WORLD_RANK=3");
    EXPECT_EQ(other.exit_code, 64) << wrong;
    EXPECT_EQ(other.err, "") << wrong;
  }
  EXPECT_EQ(run_program("--version", "SLURM_PROCID=5").out, "");
  EXPECT_EQ(run_program("status --help", "OMPI_COMM_WORLD_RANK=1").out, "");
}

TEST(CommandLine, FatalLineEscapesWhatWouldBreakIt) {
  Error error(ExitCode::kStorage, "a \"b\"\n\\ \x01", "h\t");
  error.set_step(1200);
  EXPECT_EQ(fatal_line(error, 7),
            "FATAL code=74 rank=7 step=1200 what=\"a \\\"b\\\"\\n\\\\ \\u0001\" hint=\"h\\t\"");
  // A path may hold bytes that are no UTF-8.
  EXPECT_EQ(fatal_line(Error(ExitCode::kStorage, "a\xFFz"), 0),
            "FATAL code=74 rank=0 step=- what=\"a\xEF\xBF\xBDz\"");
}

TEST(CommandLine, AtATerminalErrorsAreLinesForPeople) {
  const Terminal plain{.is_terminal = true, .width = 34};
  Error error(ExitCode::kCommunication, "no progress in the last 600 s", "look at the other ranks' lines");
  error.set_step(1200);
  EXPECT_EQ(error_text(error, 3, plain),
            "error: step 1200, rank 3: no\n       progress in the last 600 s\n"
            "hint: look at the other ranks'\n      lines");
  EXPECT_EQ(error_text(Error(ExitCode::kUsage, "unknown\x1b[2J verb"), 0, plain), "error: unknown [2J verb");
  const Terminal color{.is_terminal = true, .rewrites = true, .colors = true, .width = 0};
  EXPECT_EQ(error_text(Error(ExitCode::kUsage, "no", "yes"), 0, color),
            "\x1b[1;31merror:\x1b[0m no\n\x1b[1mhint:\x1b[0m yes");
}

// slurm/launch.sh tells that the standard error of the ranks ends at a terminal.
TEST(CommandLine, TheProgramAsksWhetherItSpeaksToPeople) {
  EXPECT_EQ(run_program("statsu", "NO_COLOR=1 TERM=dumb RIPSTOP_TERMINAL=2").err,
            "error: unknown verb 'statsu'\nhint: did you mean 'status'?\n");
  EXPECT_EQ(run_program("statsu", "TERM=xterm RIPSTOP_TERMINAL=01").err,
            "FATAL code=64 rank=0 step=- what=\"unknown verb 'statsu'\" hint=\"did you mean 'status'?\"\n");
}

TEST(Doctor, JsonSaysWhatWasBuiltAndWhatIsHere) {
  const ProgramRun run = run_program("doctor --json");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  for (const char* library : {"MPI", "oneDNN", "HDF5", "SentencePiece"})
    EXPECT_FALSE(json.at("libraries").at(library).get<std::string>().empty()) << library;
  EXPECT_EQ(json.at("ranks"), 1);
  const auto& node = json.at("nodes").at(0);
  EXPECT_GT(node.at("memory_bytes").get<int64_t>(), int64_t{1} << 28);
  EXPECT_GE(node.at("cores").get<int64_t>(), 1);
  EXPECT_GE(node.at("cores_allowed").get<int64_t>(), 1);
  EXPECT_FALSE(node.at("processor").get<std::string>().empty());
}

TEST(Doctor, ComplainsAboutThreadsWithoutCores) {
  const ProgramRun run = run_program("doctor", "OMP_NUM_THREADS=4096");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(has(run.out, "! 4096 threads a rank on")) << run.out;
}

class Status : public testing::Test {
 protected:
  std::string run_directory(const std::string& name) const {
    std::filesystem::create_directories(scratch_ / name);
    return (scratch_ / name).string();
  }
  void write_run(const std::string& name, int exit_code) const {
    MetricsFile file(std::filesystem::path(run_directory(name)) / "metrics.jsonl");
    StartEvent start;
    start.steps = 40;
    file.write(start);
    StepMetrics step;
    step.step = 20;
    step.loss = 2.5;
    step.step_seconds = 3;
    step.tokens_per_second = 1234.4;
    file.write(step);
    ValidationEvent validation;
    validation.step = 20;
    validation.loss = 2.75;
    file.write(validation);
    EndEvent end;
    end.step = 20;
    end.exit_code = exit_code;
    if (exit_code >= 0) file.write(end);
  }
  nlohmann::json status_of(const std::string& directories) const {
    const ProgramRun run = run_program("status --json " + directories);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return nlohmann::json::parse(run.out);
  }

  ScratchDirectory scratch_;
};

TEST_F(Status, TellsTheStateOfEveryRunInAFolder) {
  write_run("a_running", -1);
  write_run("b_done", 0);
  write_run("c_stopped", 75);
  write_run("d_failed", 77);
  write_run("e_interrupted", -1);
  write_bytes(scratch_ / "f_torn/metrics.jsonl", "{\"event\":\"start\",\"step\":0}\n{\"event\":\"st");
  write_bytes(scratch_ / "g_damaged/metrics.jsonl", "{\"event\":\n{}\n");
  std::filesystem::create_directories(scratch_ / "not_a_run");
  PosixIo io;
  const RunLock lock(io, scratch_ / "a_running");
  const nlohmann::json runs = status_of(scratch_.path().string());
  std::vector<std::string> states;
  for (const auto& run : runs) states.push_back(run.at("state"));
  EXPECT_EQ(states, (std::vector<std::string>{"running", "done", "stopped", "failed (77)", "interrupted",
                                              "interrupted", "unreadable"}));
  EXPECT_EQ(runs[0].at("step"), 20);
  EXPECT_EQ(runs[0].at("steps"), 40);
  EXPECT_EQ(runs[0].at("loss"), 2.5);
  EXPECT_EQ(runs[0].at("best_validation_loss"), 2.75);
  EXPECT_EQ(runs[0].at("eta_seconds"), 60);
  EXPECT_TRUE(runs[1].at("eta_seconds").is_null());
  EXPECT_TRUE(has(runs[6].at("note"), "metrics.jsonl:1"));

  const ProgramRun table = run_program("status " + scratch_.path().string());
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_TRUE(has(table.out, "20/40    2.5000    2.7500      1234"));
}

// A killed run leaves its LOCK behind. A live run touches its LOCK every few seconds.
TEST_F(Status, TheLockTellsARunThatDiedFromOneThatRuns) {
  for (const char* name : {"here", "killed_here", "elsewhere", "died_elsewhere"}) write_run(name, -1);
  write_run("resumed", 75);
  PosixIo io;
  const RunLock here(io, scratch_ / "here"), resumed(io, scratch_ / "resumed");
  const std::string lock = read_bytes(scratch_ / "here/LOCK");
  const auto changed = [&](const std::string& key) {
    return std::regex_replace(lock, std::regex("\n" + key + " .*"), "\n" + key + " 0");
  };
  write_bytes(scratch_ / "killed_here/LOCK", changed("started"));
  for (const char* name : {"elsewhere", "died_elsewhere"})
    write_bytes(scratch_ / name / "LOCK", changed("host"));
  std::filesystem::last_write_time(scratch_ / "died_elsewhere/LOCK",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::minutes(2));
  const auto status = [&](const std::string& name) { return status_of((scratch_ / name).string()).at(0); };
  EXPECT_EQ(status("here").at("state"), "running");
  EXPECT_EQ(status("resumed").at("state"), "running");
  EXPECT_EQ(status("elsewhere").at("state"), "running");
  EXPECT_EQ(status("died_elsewhere").at("state"), "interrupted");
  EXPECT_EQ(status("killed_here").at("state"), "interrupted");
  EXPECT_TRUE(has(status("killed_here").at("note"), "ended without releasing the run"));
}

// `ripstop status runs/*` names everything in a folder, so folders without a run are passed over.
TEST_F(Status, WhatLiesBesideRunsIsPassedOver) {
  write_run("a", 0);
  write_run("c", 75);
  write_bytes(scratch_ / "b_data/train.h5", "tokens");
  const std::string folder = scratch_.path().string();
  EXPECT_EQ(status_of(folder + "/a " + folder + "/b_data " + folder + "/c").size(), 2U);
  const ProgramRun none = run_program("status " + folder + "/b_data");
  EXPECT_EQ(none.exit_code, 65);
  EXPECT_TRUE(has(none.err, "no run in " + folder + "/b_data")) << none.err;
}

TEST_F(Status, NewestCheckpointIsACommittedOne) {
  write_run("run", -1);
  const std::string run = run_directory("run");
  for (const char* name : {"step_00000010", "step_00000020", "step_00000030.tmp", "step-99-backup", "step_"})
    write_bytes(scratch_.path() / "run/checkpoints" / name / "manifest.json", "{}");
  std::filesystem::create_directories(scratch_ / "run/checkpoints/step_00000040");
  EXPECT_EQ(status_of(run).at(0).at("newest_checkpoint"), 20);
}

TEST_F(Status, PlacesWithoutRunsAreRefused) {
  expect_refused(run_program("status " + (scratch_ / "absent").string()), 64, "is not a directory");
  expect_refused(run_program("status " + scratch_.path().string()), 65, "no run in");
}

}  // namespace
}  // namespace ripstop
