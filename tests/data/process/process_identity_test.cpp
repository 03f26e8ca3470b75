#include "data/process/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/process/child_process.h"
#include "model/core/error.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

TEST(ProcessIdentityTest, AProcessIsKnownWhileItRuns) {
  ProcessIdentity other = this_process();
  EXPECT_EQ(state_of(other), ProcessState::kRuns);
  EXPECT_EQ(state_of(parse_process(to_text(other))), ProcessState::kRuns);
  const std::optional<std::string> child =
      run_in_child([] { return to_text(this_process()); }, [] { return false; });
  ASSERT_TRUE(child);
  EXPECT_EQ(parse_process(*child).at("host"), other.at("host"));
  EXPECT_EQ(state_of(parse_process(*child)), ProcessState::kGone);
  // A later process may get the pid of a process that has ended.
  other["started"] = "1";
  EXPECT_EQ(state_of(other), ProcessState::kGone);
}

TEST(ProcessIdentityTest, WhatCannotBeSeenFromHereMayRun) {
  for (const char* fact : {"host", "boot", "namespace"}) {
    ProcessIdentity other = this_process();
    other["started"] = "1";
    other[fact] += "2";
    EXPECT_EQ(state_of(other), ProcessState::kElsewhere) << fact;
    other.erase(fact);
    EXPECT_EQ(state_of(other), ProcessState::kElsewhere) << fact;
  }
  EXPECT_EQ(state_of({}), ProcessState::kElsewhere);
  EXPECT_EQ(describe({{"pid", "12"}, {"host", "node7"}}), "process 12 on node7");
  EXPECT_EQ(describe({}), "process ? on ?");
}

TEST(ChildProcessTest, GivesTheTextOfItsWork) {
  const std::string large(1 << 20, 'x');
  EXPECT_EQ(run_in_child([&] { return large; }, [] { return false; }), large);
  EXPECT_EQ(run_in_child([] { return std::string(); }, [] { return false; }), "");
  EXPECT_EQ(run_in_child([] { return std::string("a\0b", 3); }, [] { return false; }),
            std::string("a\0b", 3));
}

TEST(ChildProcessTest, ThrowsWhatItsWorkThrows) {
  const auto thrown_by = [](FunctionRef<std::string()> work) {
    return error_of([&] { run_in_child(work, [] { return false; }); });
  };
  const Error thrown = thrown_by([]() -> std::string { throw Error(ExitCode::kInputData, "what", "hint"); });
  EXPECT_EQ(thrown.code(), ExitCode::kInputData);
  EXPECT_STREQ(thrown.what(), "what");
  EXPECT_EQ(thrown.hint(), "hint");
  EXPECT_EQ(thrown_by([]() -> std::string { throw std::bad_alloc(); }).code(), ExitCode::kResources);
  const Error killed = thrown_by([] { return std::to_string(kill(getpid(), SIGKILL)); });
  EXPECT_EQ(killed.code(), ExitCode::kResources);
  EXPECT_STREQ(killed.what(), "a child process was killed by signal 9");
}

TEST(ChildProcessTest, AStopEndsWorkThatWouldNeverEnd) {
  int asked = 0;
  const auto stop = [&] { return ++asked == 3; };
  EXPECT_EQ(run_in_child(
                [] {
                  for (;;) pause();
                  return std::string();
                },
                stop),
            std::nullopt);
  EXPECT_EQ(asked, 3);
  // The child is gone, also from the table of processes.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(ChildProcessTest, AnEndThatCannotBeKnownIsNoSuccess) {
  signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(output_of_program({"false"}, 60), std::nullopt);
  signal(SIGCHLD, SIG_DFL);
}

TEST(ProcessIdentityTest, AStoredTextCannotCommandATerminal) {
  EXPECT_EQ(describe(parse_process("host n1\x1b[2J\npid 7\n")), "process 7 on n1 [2J");
}

}  // namespace
}  // namespace ripstop
