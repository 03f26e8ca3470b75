#include "train/run/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Unblocks the signals in this thread, so that the handler has run when raise() returns.
void take_signals() {
  unblock_signals(std::array{SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXCPU});
}

// Sends `signals` to this process. Ends with code 3 if none of them has ended it.
[[noreturn]] void send(StopFor purpose, std::initializer_list<int> signals, useconds_t pause_us = 0) {
  const StopSignal stop(purpose);
  take_signals();
  for (const int signal : signals) {
    raise(signal);
    if (pause_us > 0) usleep(pause_us);
  }
  _exit(stop.requested() ? 3 : 4);
}

TEST(StopSignalTest, TheFirstSignalIsARequest) {
  for (const StopFor purpose : {StopFor::kCheckpoint, StopFor::kCleanUp})
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXCPU})
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

// Only while a StopEndsProcess lives does a signal end the process. Before and after, it is a request.
TEST(StopSignalTest, ARequestEndsAWaitWithoutAnEnd) {
  const auto wait = [](bool before, bool after) {
    const StopSignal stop(StopFor::kCheckpoint);
    take_signals();
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

// The first Ctrl-C ends nothing, even after another signal: the person may not know of that.
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

std::array<bool, 4> blocked_in_this_thread() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  std::array<bool, 4> blocked{};
  for (size_t i = 0; const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP})
    blocked[i++] = sigismember(&mask, signal) == 1;
  return blocked;
}

// On a thread that computes, a handler would overwrite heap memory.
TEST(StopSignalTest, NoThreadThatComputesTakesTheSignals) {
  constexpr std::array kAll = {true, true, true, true}, kNone = {false, false, false, false};
  {
    const StopSignal stop(StopFor::kCheckpoint);
    EXPECT_EQ(blocked_in_this_thread(), kAll);
    std::array<bool, 4> later{};
    std::thread([&] { later = blocked_in_this_thread(); }).join();
    EXPECT_EQ(later, kAll);
    kill(getpid(), SIGUSR1);
    while (!stop.requested()) usleep(1000);
  }
  EXPECT_EQ(blocked_in_this_thread(), kNone) << "as before";
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGXCPU}) std::signal(signal, SIG_DFL);
}

TEST(StopSignalTest, ARequestThatIsRepeatedAtTheEndDoesNotChangeTheExitCode) {
  const auto end = [](int first, int second) {
    {
      const StopSignal stop(StopFor::kCheckpoint);
      take_signals();
      if (first != 0) raise(first);
    }
    raise(second);
    _exit(3);
  };
  for (const int second : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    EXPECT_EXIT(end(SIGUSR1, second), testing::ExitedWithCode(3), "") << second;
    EXPECT_EXIT(end(0, second), testing::KilledBySignal(second), "") << second;
  }
}

TEST(StopSignalTest, EndProcessEndsItByASignalThatAnotherThreadTook) {
  const auto end = [] {
    const StopSignal stop(StopFor::kCleanUp);
    kill(getpid(), SIGHUP);
    while (!stop.requested()) usleep(1000);
    stop.end_process();
    _exit(3);
  };
  EXPECT_EXIT(end(), testing::KilledBySignal(SIGHUP), "");
}

TEST(StopSignalTest, ASecondInterruptEndsAProcessThatTakesNoSignalsItself) {
  const auto twice = [](StopFor purpose) {
    const StopSignal stop(purpose);
    kill(getpid(), SIGINT);
    while (!stop.requested()) usleep(1000);
    usleep(1'100'000);
    kill(getpid(), SIGINT);
    for (;;) pause();
  };
  EXPECT_EXIT(twice(StopFor::kCheckpoint), testing::ExitedWithCode(static_cast<int>(ExitCode::kRequeue)), "");
  EXPECT_EXIT(twice(StopFor::kCleanUp), testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignalTest, EndProcessEndsItByTheFirstSignal) {
  const auto end = [](std::initializer_list<int> signals) {
    const StopSignal stop(StopFor::kCleanUp);
    take_signals();
    for (const int signal : signals) raise(signal);
    stop.end_process();
    _exit(3);
  };
  EXPECT_EXIT(end({SIGTERM, SIGHUP}), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(end({}), testing::ExitedWithCode(3), "");
}

}  // namespace
}  // namespace ripstop
