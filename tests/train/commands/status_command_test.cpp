// `ripstop status`: the state of runs from their files alone, however damaged.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <utility>

#include "tests/train/commands/run_program.h"
#include "train/checkpoint/run_lock.h"
#include "train/report/metrics.h"

namespace ripstop {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Status : public testing::Test {
 protected:
  std::string run_directory(const std::string& name) const {
    std::filesystem::create_directories(scratch_ / name);
    return (scratch_ / name).string();
  }
  void write_run(const std::string& name, int exit_code, const std::string& reason = "") const {
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
    end.reason = reason;
    if (exit_code >= 0) file.write(end);
  }
  nlohmann::json status_of(const std::string& directories) const {
    const ProgramRun run = expect_success(run_program("status --json " + directories));
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
  Io io;
  const RunLock lock(io, scratch_ / "a_running");
  const nlohmann::json runs = status_of(scratch_.path().string());
  std::vector<std::string> states;
  for (const auto& run : runs) states.push_back(run.at("state"));
  EXPECT_EQ(states, (std::vector<std::string>{"running", "done", "stopped", "failed (77)", "interrupted",
                                              "interrupted", "empty"}));
  EXPECT_EQ(runs[0].at("step"), 20);
  EXPECT_EQ(runs[0].at("steps"), 40);
  EXPECT_EQ(runs[0].at("loss"), 2.5);
  EXPECT_EQ(runs[0].at("best_validation_loss"), 2.75);
  EXPECT_EQ(runs[0].at("eta_seconds"), 60);
  EXPECT_TRUE(runs[1].at("eta_seconds").is_null());
  EXPECT_TRUE(has(runs[6].at("note"), "metrics.jsonl: 2 lines are no events, the first is line 1"));

  const ProgramRun table = expect_success(run_program("status " + scratch_.path().string()));
  EXPECT_TRUE(has(table.out, "20/40    2.5000    2.7500      1234"));
}

TEST_F(Status, ARunThatStoppedImprovingIsDone) {
  {
    MetricsFile file(std::filesystem::path(run_directory("run")) / "metrics.jsonl");
    ValidationEvent initial_weights;
    initial_weights.loss = 2;
    file.write(initial_weights);
  }
  write_run("run", 0, EndReason::kNoImprovement);
  const nlohmann::json run = status_of(scratch_.path().string()).at(0);
  EXPECT_EQ(run.at("state"), "done");
  EXPECT_EQ(run.at("step"), 20);
  EXPECT_TRUE(has(run.at("note"), "validations brought no improvement (train.stop_after_validations)"));
  EXPECT_EQ(run.at("best_validation_loss"), 2.75) << "the initial weights are no checkpoint";
  write_run("all_steps", 0, EndReason::kSteps);
  EXPECT_FALSE(status_of(run_directory("all_steps")).at(0).contains("note"));
}

TEST_F(Status, NamesTheSlowRanksOfARunningRun) {
  for (const char* name : {"running", "over"}) {
    write_run(name, name == std::string("over") ? 0 : -1);
    MetricsFile file(scratch_ / name / "metrics.jsonl");
    HostsEvent event;
    event.step = 20;
    event.slow = {{3, "n2", 0.52}, {4, "n3", 1.16}, {5, "n7", 0.7}};  // the second is fast again
    event.exclude = "--exclude=n2,n3,n7";
    file.write(event);
  }
  Io io;
  const RunLock lock(io, scratch_ / "running");
  const nlohmann::json run = status_of(run_directory("running")).at(0);
  EXPECT_EQ(run.at("exclude"), "--exclude=n2,n7");
  EXPECT_EQ(run.at("slow_ranks").at(0), "rank 3 (n2) at 0.52 of the median speed");
  const ProgramRun table = run_program("status " + run_directory("running"));
  EXPECT_TRUE(has(table.out,
                  "slow: rank 3 (n2) at 0.52 of the median speed, rank 5 (n7) at 0.70 of the median "
                  "speed; to leave them out of the job: --exclude=n2,n7"))
      << table.out;
  EXPECT_FALSE(status_of(run_directory("over")).at(0).contains("exclude")) << "that run is over";
  {
    MetricsFile file(scratch_ / "running/metrics.jsonl");
    HostsEvent event;
    event.step = 25;
    event.slow = {{3, "n2", 1.16}, {5, "n7", 0.75}};
    file.write(event);
  }
  const nlohmann::json later = status_of(run_directory("running")).at(0);
  EXPECT_EQ(later.at("exclude"), "--exclude=n7");
  EXPECT_EQ(later.at("slow_ranks"), (std::vector<std::string>{"rank 5 (n7) at 0.75 of the median speed"}));
  EXPECT_EQ(later.at("were_slow"),
            (std::vector<std::string>{"rank 3 (n2) was slow at step 20, at 0.52 of the median speed"}));
  EXPECT_TRUE(has(later.at("note"), "--exclude=n7; rank 3 (n2) was slow at step 20, at 0.52"));
  // A start after that window may have other nodes.
  StartEvent resumed;
  resumed.step = 25;
  MetricsFile(scratch_ / "running/metrics.jsonl").write(resumed);
  EXPECT_FALSE(status_of(run_directory("running")).at(0).contains("exclude"));
  EXPECT_FALSE(status_of(run_directory("running")).at(0).contains("were_slow"));
  // A later window without slow ranks: they have recovered.
  {
    MetricsFile file(scratch_ / "running/metrics.jsonl");
    HostsEvent event;
    event.step = 27;
    event.slow = {{3, "n2", 0.52}};
    file.write(event);
    event = {};
    event.step = 30;
    file.write(event);
  }
  const nlohmann::json recovered = status_of(run_directory("running")).at(0);
  EXPECT_FALSE(recovered.contains("exclude"));
  EXPECT_EQ(recovered.at("were_slow"),
            (std::vector<std::string>{"rank 3 (n2) was slow at step 27, at 0.52 of the median speed"}));
}

TEST_F(Status, WideColumnsStayApart) {
  write_run("a_run", -1);
  MetricsFile file(scratch_ / "a_run/metrics.jsonl");
  StartEvent start;
  start.steps = 123456789012;
  file.write(start);
  StepMetrics step;
  step.step = 98765432101;
  step.loss = 1234567.25;
  step.tokens_per_second = 12345678901;
  file.write(step);
  file.sync();
  const ProgramRun table = run_program("status " + scratch_.path().string());
  EXPECT_TRUE(has(table.out, "  98765432101/123456789012  1234567.2500    2.7500  12345678901  "))
      << table.out;
  const size_t head = table.out.find('\n');
  EXPECT_EQ(table.out.find('\n', head + 1), 2 * head + 1) << "lines of one length\n" << table.out;
}

// A killed run leaves its LOCK behind. A live run touches its LOCK every few seconds.
TEST_F(Status, TheLockTellsARunThatDiedFromOneThatRuns) {
  for (const char* name : {"here", "killed_here", "elsewhere", "died_elsewhere"}) write_run(name, -1);
  write_run("resumed", 75);
  Io io;
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

// Directories of a folder that are no runs are skipped. A wrong argument is named, and the others are shown.
TEST_F(Status, WrongArgumentsAreNamedBesideTheOthers) {
  write_run("a", 0);
  write_run("c", 75);
  write_bytes(scratch_ / "b_data/train.h5", "tokens");
  const std::string folder = scratch_.path().string();
  EXPECT_EQ(status_of(folder).size(), 2U);
  const ProgramRun some = run_program("status --json " + folder + "/a " + folder + "/b_data " + folder +
                                      "/nope " + folder + "/c");
  EXPECT_EQ(some.exit_code, 64);
  EXPECT_EQ(nlohmann::json::parse(some.out).size(), 2U);
  EXPECT_TRUE(has(some.err, folder + "/b_data: is not a run directory, and holds none: there is no "))
      << some.err;
  EXPECT_TRUE(has(some.err, folder + "/nope: no such directory")) << some.err;
  const ProgramRun none = run_program("status " + folder + "/b_dota");
  EXPECT_EQ(none.exit_code, 64);
  EXPECT_TRUE(has(none.err, "did you mean " + folder + "/b_data?")) << none.err;
}

// Runs are looked for one level deep, as the help and the refusal say.
TEST_F(Status, ListsTheRunsOfAFolderAndNoneDeeper) {
  write_run("sweep/a", 0);
  write_run("sweep/b", 0);
  const std::string folder = scratch_.path().string();
  EXPECT_EQ(status_of(folder + "/sweep").size(), 2U);
  const ProgramRun above = run_program("status " + folder);
  EXPECT_EQ(above.exit_code, 64);
  EXPECT_TRUE(has(above.err, "holds them itself: what lies deeper is not looked at")) << above.err;
  EXPECT_TRUE(has(run_program("status --help").out, "folders that hold runs themselves, not deeper"));
}

// A damaged log does not hide its run: the readable part is shown.
TEST_F(Status, ADamagedLogSaysWhatItCan) {
  write_run("a", -1);
  const auto log = scratch_ / "a/metrics.jsonl";
  write_bytes(log, read_bytes(log) + std::string(512, '\0') + "\n\ngarbage\n");
  const nlohmann::json run = status_of((scratch_ / "a").string()).at(0);
  EXPECT_EQ(run.at("step"), 20);
  EXPECT_EQ(run.at("state"), "interrupted");
  EXPECT_TRUE(has(run.at("note"), "metrics.jsonl: 3 lines are no events, the first is line 4")) << run;
  EXPECT_TRUE(has(run_program("status " + (scratch_ / "a").string()).out, "3 lines are no events"));
}

// The pipe has no writer, so a status that waited for it would hang.
TEST_F(Status, ANamedPipeIsRefusedAndWaitedForByNobody) {
  write_run("a", 0);
  std::filesystem::create_directories(scratch_ / "b");
  ASSERT_EQ(mkfifo((scratch_ / "b/metrics.jsonl").c_str(), 0600), 0);
  const nlohmann::json runs = status_of(scratch_.path().string());
  EXPECT_EQ(runs[0].at("state"), "done");
  EXPECT_EQ(runs[1].at("state"), "unreadable");
  EXPECT_TRUE(has(runs[1].at("note"), "not a plain file")) << runs[1];
}

// Files from the future: a wrong clock, or `touch -d 2100-01-01`.
TEST_F(Status, ATimeInTheFutureIsNotBelieved) {
  write_run("a", -1);
  Io io;
  std::string lock;
  {
    const RunLock owner(io, scratch_ / "a");
    lock = read_bytes(scratch_ / "a/LOCK");
  }
  write_bytes(scratch_ / "a/LOCK", std::regex_replace(lock, std::regex("\nhost .*"), "\nhost far"));
  const auto state = [&] { return status_of((scratch_ / "a").string()).at(0); };
  EXPECT_EQ(state().at("state"), "running") << "the heartbeat is new";
  const auto future = std::filesystem::file_time_type::clock::now() + std::chrono::hours(24 * 365 * 70);
  for (const char* name : {"LOCK", "metrics.jsonl"})
    std::filesystem::last_write_time(scratch_ / "a" / name, future);
  const nlohmann::json run = state();
  EXPECT_EQ(run.at("state"), "interrupted");
  EXPECT_TRUE(run.at("seconds_since_update").is_null());
  EXPECT_TRUE(has(run.at("note"), "metrics.jsonl has a time in the future")) << run;
  EXPECT_TRUE(has(run.at("note"), "LOCK has a time in the future")) << run;
}

TEST_F(Status, NewestCheckpointIsACommittedOne) {
  write_run("run", -1);
  const std::string run = run_directory("run");
  for (const char* name : {"step_00000010", "step_00000020", "step_00000030.tmp", "step-99-backup", "step_"})
    write_bytes(scratch_.path() / "run/checkpoints" / name / "manifest.json", "{}");
  std::filesystem::create_directories(scratch_ / "run/checkpoints/step_00000040");
  EXPECT_EQ(status_of(run).at(0).at("newest_checkpoint"), 20);
}

// Status computes the stop from the log alone, as the run itself does.
TEST_F(Status, ARunningRunTellsWhenItStopsItself) {
  std::filesystem::create_directories(scratch_ / "run");
  {
    MetricsFile file(scratch_ / "run/metrics.jsonl");
    StartEvent start;
    start.steps = 100;
    start.deadline = 2e9;
    start.deadline_source = "squeue";
    start.checkpoint_bytes = 1'000'000'000;
    file.write(start);
    StepMetrics metrics;
    metrics.loss = 2;
    for (metrics.step = 1; metrics.step <= 30; ++metrics.step) {
      metrics.step_seconds = metrics.step == 1 ? 90 : metrics.step == 20 ? 8 : 3;
      file.write(metrics);
    }
  }
  Io io;
  const auto state = [&] { return status_of((scratch_ / "run").string()).at(0); };
  EXPECT_TRUE(state().at("deadline").is_null()) << "nobody runs";
  const RunLock lock(io, scratch_ / "run");
  EXPECT_EQ(state().at("deadline"), 2e9);
  EXPECT_EQ(state().at("stops_at"), 2e9 - 2 * 4 - 8 - 20) << "250 MB/s";
  MetricsFile(scratch_ / "run/metrics.jsonl")
      .write(CheckpointEvent{.step = 30, .path = "x", .bytes = 1, .seconds = 5});
  EXPECT_EQ(state().at("stops_at"), 2e9 - 2 * 5 - 8 - 20);
  EXPECT_TRUE(has(state().at("note"), "(squeue), the run stops itself at about 2033-05-1"));
  EXPECT_TRUE(has(state().at("note"), " or an earlier signal"));
  MetricsFile(scratch_ / "run/metrics.jsonl")
      .write(WarningEvent{.step = 30, .text = "raised", .deadline = 2.1e9, .deadline_source = "squeue"});
  EXPECT_EQ(state().at("stops_at"), 2.1e9 - 2 * 5 - 8 - 20) << "the limit of the job was raised";

  StartEvent again;
  again.step = 30;
  again.steps = 100;
  again.deadline = 3e9;
  MetricsFile(scratch_ / "run/metrics.jsonl").write(again);
  EXPECT_EQ(state().at("stops_at"), 3e9 - 2 * 5 - 20) << "steps of an earlier start may be of other machines";
  EXPECT_TRUE(state().at("eta_seconds").is_null());
  StepMetrics next;
  next.step = 31;
  next.step_seconds = 2;
  MetricsFile(scratch_ / "run/metrics.jsonl").write(next);
  EXPECT_EQ(state().at("stops_at"), 3e9 - 2 * 5 - 2 - 20);
  EXPECT_EQ(state().at("eta_seconds"), 2 * 69);
  for (const double seconds : {1.5, 1.0})
    MetricsFile(scratch_ / "run/metrics.jsonl")
        .write(CheckpointEvent{.step = 31, .path = "x", .bytes = 1, .seconds = seconds});
  EXPECT_EQ(state().at("stops_at"), 3e9 - 2 * 1.5 - 2 - 20) << "the slowest save of this start";
}

TEST_F(Status, ARunThatIsStillPlanningHasOnlyItsLock) {
  std::filesystem::create_directories(scratch_ / "new");
  Io io;
  const RunLock lock(io, scratch_ / "new");
  const nlohmann::json run = status_of((scratch_ / "new").string()).at(0);
  EXPECT_EQ(run.at("state"), "running");
  EXPECT_TRUE(run.at("seconds_since_update").is_null());
}

// A child that runs `ripstop status --watch`, with a pipe or a terminal for its output.
class Watched {
 public:
  Watched(const std::string& directory, bool terminal) {
    int ends[2] = {-1, -1};
    if (!terminal && pipe(ends) != 0) throw std::runtime_error("no pipe");
    winsize size{};
    size.ws_row = 24, size.ws_col = 60;
    pid_ = terminal ? forkpty(&output_, nullptr, nullptr, &size) : fork();
    if (pid_ == 0) {
      setenv("TERM", "xterm", 1);
      if (!terminal) dup2(ends[1], STDOUT_FILENO);
      const std::string program = ripstop_program();
      execl(program.c_str(), program.c_str(), "status", "--watch", "--interval", "1", directory.c_str(),
            nullptr);
      _exit(127);
    }
    if (terminal) return;
    close(ends[1]);
    output_ = ends[0];
  }
  ~Watched() {
    close(output_);
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Reads until `part` has come. Returns all output since the last call.
  std::string read_until(const std::string& part) {
    std::string text;
    char block[4096];
    while (text.find(part) == text.npos) {
      pollfd ready{output_, POLLIN, 0};
      if (poll(&ready, 1, 60000) != 1) break;
      const ssize_t got = read(output_, block, sizeof block);
      if (got <= 0) break;
      text.append(block, static_cast<size_t>(got));
    }
    EXPECT_TRUE(has(text, part)) << text;
    return text;
  }
  int interrupt() {
    kill(pid_, SIGINT);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

TEST_F(Status, WatchWritesALineWhenSomethingChanges) {
  write_run("a", -1);
  write_run("b", 0);
  Watched watched(scratch_.path().string(), false);
  const std::string first = watched.read_until("/b  done");
  EXPECT_TRUE(has(first, "/a  interrupted  step 20/40  loss 2.5000  best val 2.7500")) << first;
  {
    MetricsFile file(scratch_ / "a/metrics.jsonl");
    StepMetrics step;
    step.step = 21;
    step.loss = 2.25;
    file.write(step);
  }
  const std::string next = watched.read_until("step 21/40  loss 2.2500");
  EXPECT_FALSE(has(next, "/b  done")) << "nothing changed there";
  EXPECT_EQ(watched.interrupt(), 0);
}

TEST_F(Status, WatchDrawsOverItsTableAtATerminal) {
  write_run("a", -1);
  Watched watched((scratch_ / "a").string(), true);
  EXPECT_TRUE(has(watched.read_until("\x1b[J"), "interrupted"));
  const std::string again = watched.read_until("\x1b[J");
  EXPECT_EQ(again.rfind("\x1b[2A\r", 0), 0u) << "two lines up: the head and the run";
  std::istringstream lines(again.substr(again.find('\r') + 1));
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.substr(0, line.find('\x1b')).size(), 60u) << "no longer than the terminal is wide";
  EXPECT_EQ(watched.interrupt(), 0);
}

TEST_F(Status, WatchRefusesWhatCannotBe) {
  EXPECT_EQ(run_program("status --watch --json " + scratch_.path().string()).exit_code, 64);
  EXPECT_EQ(run_program("status --watch " + (scratch_ / "absent").string()).exit_code, 64);
}

}  // namespace
}  // namespace ripstop
