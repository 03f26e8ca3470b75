#include "train/commands/command_line.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/train/commands/run_program.h"
#include "train/commands/end_failed.h"
#include "train/machine/version.h"

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

// The shell leaves "~" alone behind "=" and in quotes.
TEST(CommandLine, EveryPathMayBeginWithHome) {
  for (const char* words : {"train",
                            "train c.toml run.directory=",
                            "train c.toml data.directory=",
                            "train c.toml model.pretrained=",
                            "train c.toml lora.adapter=",
                            "plan",
                            "check",
                            "doctor --config=",
                            "evaluate",
                            "evaluate r --base=",
                            "evaluate r --checkpoint=",
                            "evaluate r --data=",
                            "evaluate r --output=",
                            "summarize",
                            "summarize r --input=",
                            "summarize r --output=",
                            "summarize r --tokenizer=",
                            "summarize r --base=",
                            "prepare --show 1",
                            "prepare --input=",
                            "prepare --input a",
                            "prepare --output=",
                            "prepare --tokenizer=",
                            "prepare --splits=",
                            "rouge --reference=",
                            "rouge --candidate=",
                            "status",
                            "status r",
                            "checkpoint list",
                            "checkpoint inspect",
                            "checkpoint verify",
                            "checkpoint verify r --checkpoint=",
                            "checkpoint import",
                            "checkpoint import m",
                            "checkpoint export",
                            "checkpoint export r",
                            "checkpoint export r o --base="}) {
    const ScratchDirectory scratch;
    write_bytes(scratch / "c.toml", "[run]\ndirectory = \"r\"\n");
    const std::string cd = "cd '" + scratch.path().string() + "' && ";
    const std::string begin = std::string(words) + (std::string(words).ends_with('=') ? "" : " ");
    const ProgramRun unknown = run_program(begin + "'~no-user/x'", cd);
    EXPECT_EQ(unknown.exit_code, 64) << words << unknown.err;
    EXPECT_TRUE(has(unknown.err, "has no known home directory")) << words << unknown.err;
    const ProgramRun known = run_program(begin + "'~/x'", cd + "HOME=" + (scratch / "home").string());
    EXPECT_FALSE(has(known.err, "~")) << words << known.err;
  }
  EXPECT_TRUE(has(run_program("status '~/x'", "HOME=/absent").err, "/absent/x: "));
}

TEST(CommandLine, VersionNamesTheCommit) {
  const ProgramRun run = expect_success(run_program("--version"));
  EXPECT_EQ(run.out, "ripstop " + std::string(version()) + " (" + std::string(git_commit()) + ")\n");
}

TEST(CommandLine, WrongVerbsAreRefused) {
  expect_refused(run_program("statsu runs"), 64, "unknown verb 'statsu'", "did you mean 'status'?");
  expect_refused(run_program("qqqqqqqqqq"), 64, "unknown verb 'qqqqqqqqqq'", "ripstop --help");
  expect_refused(run_program("'a\"b\\c\nd'"), 64, "unknown verb 'a\\\"b\\\\c\\nd'");
  expect_refused(run_program("--wrong"), 64, "unknown verb '--wrong'", "ripstop --help");
  // The error names the first wrong word, not the verb behind it.
  expect_refused(run_program("statsu train"), 64, "unknown verb 'statsu'", "did you mean 'status'?");
  expect_refused(run_program("checkpoint verfy run"), 64, "unknown verb 'verfy'", "did you mean 'verify'?");
  // Other programs' words for the verbs.
  expect_refused(run_program("eval run"), 64, "unknown verb 'eval'", "did you mean 'evaluate'?");
  expect_refused(run_program("generate run"), 64, "unknown verb 'generate'", "did you mean 'summarize'?");
  expect_refused(run_program("checkpoint show run"), 64, "unknown verb 'show'",
                 "did you mean 'inspect'? ripstop checkpoint has list, inspect, verify");
  expect_refused(run_program("checkpoint qqqqqqqqqq"), 64, "unknown verb 'qqqqqqqqqq'",
                 "ripstop checkpoint has list, inspect, verify");
}

TEST(CommandLine, WithoutAVerbTheHelpIsShown) {
  for (const char* words : {"", "checkpoint"}) {
    const ProgramRun run = run_program(words);
    EXPECT_EQ(run.exit_code, 64);
    EXPECT_EQ(run.out, run_program(words + std::string(" --help")).out);
    EXPECT_TRUE(has(run.err, "a verb is required")) << run.err;
    EXPECT_TRUE(
        has(run.err, *words == 0 ? "one of check, checkpoint, doctor, " : "one of list, inspect, verify"))
        << run.err;
  }
}

// Directories may have names of verbs.
TEST(CommandLine, ArgumentsMayBeCalledLikeVerbs) {
  expect_refused(run_program("status no-run train"), 64, "no-run: no such directory");
  expect_refused(run_program("checkpoint list verify"), 64, "verify: no such directory");
  expect_refused(run_program("checkpoint list doctor"), 64, "doctor: no such directory");
}

TEST(CommandLine, HelpListsEveryVerbOnce) {
  EXPECT_EQ(listed_verbs(),
            (std::vector<std::string>{"check", "checkpoint", "doctor", "evaluate", "plan", "prepare",
                                      "report", "rouge", "status", "summarize", "train"}));
  const std::string help = run_program("--help").out;
  EXPECT_EQ(run_program("-h").out, help);
  EXPECT_EQ(run_program("help").out, help);
}

TEST(CommandLine, HelpOfAVerbIsThatOfItsOption) {
  for (const std::string verb : {"train", "checkpoint", "checkpoint list"}) {
    const ProgramRun run = run_program("help " + verb);
    EXPECT_EQ(run.exit_code, 0) << verb;
    EXPECT_EQ(run.out, run_program(verb + " --help").out) << verb;
    EXPECT_TRUE(has(run.out, "Usage: ripstop " + verb)) << run.out;
  }
  expect_refused(run_program("help trian"), 64, "unknown verb 'trian'", "did you mean 'train'?");
}

TEST(CommandLine, WrongOptionsNameTheNearest) {
  expect_refused(run_program("doctor --jsno"), 64, "--jsno", "did you mean --json?");
  expect_refused(run_program("status"), 64, "DIR", "ripstop status --help");
  expect_refused(run_program("doctor surplus"), 64, "surplus");
  expect_refused(run_program("checkpoint verify x --jsn"), 64, "--jsn", "did you mean --json?");
  expect_refused(run_program("checkpoint verify"), 64, "RUN", "ripstop checkpoint verify --help");
  expect_refused(run_program("evaluate run --limit 0"), 64, "--limit: '0' is not an integer above 0");
  expect_refused(run_program("plan run.toml --nodes 0"), 64, "--nodes: Value 0 not in range");
}

TEST(CommandLine, WrongWordsOfOptionsNameTheNearest) {
  expect_refused(run_program("checkpoint export run out --dtype bf16"), 64,
                 "--dtype: there is no 'bf16', it is one of float32, bfloat16, float16",
                 "did you mean --dtype bfloat16?");
  expect_refused(run_program("checkpoint export run out --dtype half"), 64, "there is no 'half'",
                 "did you mean --dtype float16?");
  expect_refused(run_program("checkpoint export run out --dtype blfoat16"), 64, "there is no 'blfoat16'",
                 "did you mean --dtype bfloat16?");
  expect_refused(run_program("plan c.toml --device gpu"), 64, "there is no 'gpu'",
                 "did you mean --device cuda?");
  expect_refused(run_program("evaluate run --split holdout"), 64,
                 "--split: there is no 'holdout', it is one of");
  EXPECT_TRUE(has(run_program("plan --help").out, "{cpu,cuda}"));
}

// Options for the number of ranks: the hint names the launcher.
TEST(CommandLine, OptionsOfLaunchersAreAnswered) {
  for (const char* words :
       {"train c.toml --gpus 2", "evaluate run --num-gpus=2", "plan c.toml --nproc_per_node 2"})
    expect_refused(run_program(words), 64, "has no option --", "the launcher starts the ranks: launch.sh 4");
  expect_refused(run_program("train c.toml --gpus 2 --learning_rate 1"), 64,
                 "no options --gpus, --learning_rate",
                 "overrides are section.key=value: optimizer.learning_rate=1");
}

TEST(CommandLine, ATrainedModelTakesNoOverridesButGeneration) {
  expect_refused(run_program("evaluate run --devcie cpu"), 64, "no option --devcie",
                 "did you mean --device?");
  expect_refused(run_program("train c.toml --resume"), 64, "no option --resume",
                 "the same command again resumes");
  expect_refused(run_program("evaluate run --bf16"), 64, "no option --bf16",
                 "a trained model keeps the precision.compute of its config");
  expect_refused(run_program("summarize run --early_stopping never"), 64, "no option --early_stopping",
                 "overrides are generation.key=value: generation.early_stopping=never");
}

// Keys of the config typed as options, as for other trainers.
TEST(CommandLine, KeysGivenAsOptionsAreShownAsOverrides) {
  expect_refused(run_program("train c.toml --learning_rate 1e-3"), 64,
                 "ripstop train has no option --learning_rate",
                 "overrides are section.key=value: optimizer.learning_rate=1e-3");
  expect_refused(run_program("train c.toml --learning_rate="), 64, "no option --learning_rate",
                 "optimizer.learning_rate=...");
  expect_refused(run_program("plan c.toml --optimizer.lr=1e-3 --learning-rate 2 --max_steps --jsno"), 64,
                 "has no options --optimizer.lr, --learning-rate, --max_steps, --jsno",
                 "did you mean --json? overrides are section.key=value: optimizer.learning_rate=1e-3 "
                 "optimizer.learning_rate=2 train.steps=...");
  expect_refused(run_program("summarize run --early_stopping never"), 64, "no option --early_stopping",
                 "generation.early_stopping=never");
  expect_refused(run_program("train c.toml --quite_unknown 1"), 64, "has no option --quite_unknown",
                 "ripstop train --help");
  for (const char* on : {"--bf16 true", "--bf16", "--bf16=true", "--fp16 True"})
    expect_refused(run_program(std::string("train c.toml ") + on), 64, "has no option --",
                   "precision.compute=bfloat16");
  expect_refused(run_program("train c.toml --bf16 false"), 64, "no option --bf16",
                 "precision.compute=float32");
  // The hint of a verb without overrides names none.
  expect_refused(run_program("status --learning_rate 1e-3 run"), 64, "no option --learning_rate",
                 "ripstop status --help");
}

TEST(CommandLine, OutputThatCannotBeWrittenIsAStorageError) {
  const int status = std::system(("'" + ripstop_program() + "' --version >/dev/full 2>/dev/null").c_str());
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

// do_and_agree() puts the rank before an error of one rank.
TEST(CommandLine, TheRankIsNamedOnce) {
  const Error error(ExitCode::kUsage, "rank 0: no such directory");
  EXPECT_EQ(fatal_line(error, 0), "FATAL code=64 rank=0 step=- what=\"no such directory\"");
  EXPECT_EQ(fatal_line(error, 1), "FATAL code=64 rank=1 step=- what=\"rank 0: no such directory\"");
  EXPECT_EQ(error_text(error, 0, {.is_terminal = true}), "error: no such directory");
}

TEST(CommandLine, AtATerminalErrorsAreLinesForPeople) {
  const Terminal plain{.is_terminal = true, .width = 34};
  Error error(ExitCode::kCommunication, "no progress in the last 600 s", "look at the other ranks' lines");
  error.set_step(1200);
  EXPECT_EQ(error_text(error, 3, plain),
            "error: step 1200, rank 3: no progress in the last 600 s\nhint: look at the other ranks' lines");
  EXPECT_EQ(error_text(Error(ExitCode::kUsage, "unknown\x1b[2J verb"), 0, plain),
            "error: unknown\\x1b[2J verb");
  // Several problems of a config: one a line, and one line in a log.
  const Error several(ExitCode::kUsage, "x.toml:1: a;\nx.toml:2: b");
  EXPECT_EQ(error_text(several, 0, plain), "error: x.toml:1: a;\nx.toml:2: b");
  EXPECT_EQ(fatal_line(several, 0), "FATAL code=64 rank=0 step=- what=\"x.toml:1: a; x.toml:2: b\"");
  const Terminal color{.is_terminal = true, .rewrites = true, .colors = true, .width = 0};
  EXPECT_EQ(error_text(Error(ExitCode::kUsage, "no", "yes"), 0, color),
            "\x1b[1;31merror:\x1b[0m no\n\x1b[1mhint:\x1b[0m yes");
}

// slurm/launch.sh tells the ranks that their standard error ends at a terminal.
TEST(CommandLine, TheProgramAsksWhetherItSpeaksToPeople) {
  EXPECT_EQ(run_program("statsu", "NO_COLOR=1 TERM=dumb RIPSTOP_TERMINAL=2").err,
            "error: unknown verb 'statsu'\nhint: did you mean 'status'?\n");
  EXPECT_EQ(run_program("statsu", "TERM=xterm RIPSTOP_TERMINAL=01").err,
            "FATAL code=64 rank=0 step=- what=\"unknown verb 'statsu'\" hint=\"did you mean 'status'?\"\n");
}

TEST(Doctor, JsonSaysWhatWasBuiltAndWhatIsHere) {
  const ProgramRun run = expect_success(run_program("doctor --json"));
  const auto json = nlohmann::json::parse(run.out);
  for (const char* library : {"MPI", "oneDNN", "HDF5", "SentencePiece", "PCRE2", "ICU"})
    EXPECT_FALSE(json.at("libraries").at(library).get<std::string>().empty()) << library;
  EXPECT_EQ(json.at("ranks"), 1);
  const auto& node = json.at("nodes").at(0);
  EXPECT_GT(node.at("memory_bytes").get<int64_t>(), int64_t{1} << 28);
  EXPECT_GE(node.at("cores").get<int64_t>(), 1);
  EXPECT_GE(node.at("cores_allowed").get<int64_t>(), 1);
  EXPECT_FALSE(node.at("processor").get<std::string>().empty());
}

TEST(Doctor, ComplainsAboutThreadsWithoutCores) {
  const ProgramRun run = expect_success(run_program("doctor", "OMP_NUM_THREADS=4096"));
  EXPECT_TRUE(has(run.out, "! 4096 threads a rank on")) << run.out;
}

}  // namespace
}  // namespace ripstop
