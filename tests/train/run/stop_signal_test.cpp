#include "train/run/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Ends with code 3 if no signal ends it: each test sends its signals in a process of its own.
[[noreturn]] void send(StopFor purpose, std::initializer_list<int> signals, useconds_t pause_us = 0) {
  const StopSignal stop(purpose);
  for (const int signal : signals) {
    raise(signal);
    if (pause_us > 0) usleep(pause_us);
  }
  _exit(stop.requested() ? 3 : 4);
}

TEST(StopSignalTest, TheFirstSignalIsARequest) {
  for (const StopFor purpose : {StopFor::kCheckpoint, StopFor::kCleanUp})
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP})
      EXPECT_EXIT(send(purpose, {signal}), testing::ExitedWithCode(3), "") << signal;
  EXPECT_EXIT(send(StopFor::kCleanUp, {}), testing::ExitedWithCode(4), "");
}

TEST(StopSignalTest, NohupKeepsItsMeaning) {
  const auto under_nohup = [] {
    std::signal(SIGHUP, SIG_IGN);
    send(StopFor::kCheckpoint, {SIGHUP});
  };
  EXPECT_EXIT(under_nohup(), testing::ExitedWithCode(4), "");
}

// Only a process that waits for something without an end is ended: before and after, a signal is a request.
TEST(StopSignalTest, ARequestEndsAWaitWithoutAnEnd) {
  const auto wait = [](bool before, bool after) {
    const StopSignal stop(StopFor::kCheckpoint);
    if (before) raise(SIGTERM);
    {
      const StopEndsProcess ends(stop);
      if (!after) raise(SIGINT);
    }
    raise(SIGTERM);
    _exit(stop.requested() ? 3 : 4);
  };
  const int requeue = static_cast<int>(ExitCode::kRequeue);
  EXPECT_EXIT(wait(true, true), testing::ExitedWithCode(requeue), "");
  EXPECT_EXIT(wait(false, false), testing::ExitedWithCode(requeue), "");
  EXPECT_EXIT(wait(false, true), testing::ExitedWithCode(3), "");
}

TEST(StopSignalTest, ASignalSentTwiceIsOneRequest) {
  EXPECT_EXIT(send(StopFor::kCheckpoint, {SIGTERM, SIGTERM, SIGUSR1}), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(send(StopFor::kCleanUp, {SIGTERM, SIGTERM, SIGHUP}), testing::ExitedWithCode(3), "");
}

TEST(StopSignalTest, ASecondInterruptEndsTheProcessAtOnce) {
  const int requeue = static_cast<int>(ExitCode::kRequeue);
  constexpr useconds_t kPauseUs = 1'100'000;
  EXPECT_EXIT(send(StopFor::kCheckpoint, {SIGINT, SIGINT}, kPauseUs), testing::ExitedWithCode(requeue), "");
  EXPECT_EXIT(send(StopFor::kCleanUp, {SIGINT, SIGINT}, kPauseUs), testing::KilledBySignal(SIGINT), "");
}

// A person who types Ctrl-C may not know that a job script or `timeout` has asked before.
TEST(StopSignalTest, TheFirstInterruptAfterAnotherRequestEndsNothing) {
  const int requeue = static_cast<int>(ExitCode::kRequeue);
  constexpr useconds_t kPauseUs = 1'100'000;
  const testing::ExitedWithCode goes_on(3);
  for (const int first : {SIGTERM, SIGUSR1})
    EXPECT_EXIT(send(StopFor::kCheckpoint, {first, SIGINT}, kPauseUs), goes_on, "") << first;
  EXPECT_EXIT(send(StopFor::kCleanUp, {SIGTERM, SIGINT}, kPauseUs), goes_on, "");
  EXPECT_EXIT(send(StopFor::kCheckpoint, {SIGUSR1, SIGINT, SIGINT}, kPauseUs),
              testing::ExitedWithCode(requeue), "");
  EXPECT_EXIT(send(StopFor::kCleanUp, {SIGTERM, SIGINT, SIGINT}, kPauseUs), testing::KilledBySignal(SIGINT),
              "");
}

// `timeout -s INT` signals the process and then its group.
TEST(StopSignalTest, TwoInterruptsWithinASecondAreOneRequest) {
  for (const StopFor purpose : {StopFor::kCheckpoint, StopFor::kCleanUp})
    for (const int first : {SIGINT, SIGTERM})
      EXPECT_EXIT(send(purpose, {first, SIGINT}), testing::ExitedWithCode(3), "") << first;
}

TEST(StopSignalTest, AnInterruptIsAnsweredAtATerminal) {
  const auto at = [](const char* terminal, const char* kind, StopFor purpose,
                     std::initializer_list<int> signals) {
    setenv("RIPSTOP_TERMINAL", terminal, 1);
    setenv("TERM", kind, 1);
    send(purpose, signals);
  };
  const std::string line = "stop requested; Ctrl-C again ends at once\n";
  const auto shown = [](const std::string& text) {
    return testing::Matcher<const std::string&>(testing::Eq(text));
  };
  const testing::ExitedWithCode ended(3);
  EXPECT_EXIT(at("2", "dumb", StopFor::kCheckpoint, {SIGINT}), ended, shown(line));
  EXPECT_EXIT(at("2", "xterm", StopFor::kCheckpoint, {SIGINT}), ended, shown("\r\x1b[K" + line));
  EXPECT_EXIT(at("", "xterm", StopFor::kCheckpoint, {SIGINT}), ended, shown("")) << "a log";
  EXPECT_EXIT(at("2", "xterm", StopFor::kCheckpoint, {SIGUSR1}), ended, shown("")) << "from a job script";
  EXPECT_EXIT(at("2", "dumb", StopFor::kCheckpoint, {SIGUSR1, SIGINT, SIGINT}), ended, shown(line));
  EXPECT_EXIT(at("2", "xterm", StopFor::kCleanUp, {SIGINT}), ended, shown(""));
  const auto twice = [] {
    setenv("RIPSTOP_TERMINAL", "2", 1);
    setenv("TERM", "dumb", 1);
    send(StopFor::kCheckpoint, {SIGINT, SIGINT}, 1'100'000);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(static_cast<int>(ExitCode::kRequeue)),
              shown(line + "ended at once; the same command goes on from the last checkpoint\n"));
}

TEST(StopSignalTest, EndProcessEndsItByTheFirstSignal) {
  const auto end = [](std::initializer_list<int> signals) {
    const StopSignal stop(StopFor::kCleanUp);
    for (const int signal : signals) raise(signal);
    stop.end_process();
    _exit(3);
  };
  EXPECT_EXIT(end({SIGTERM, SIGHUP}), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(end({}), testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace ripstop
