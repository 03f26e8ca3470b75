#include "train/run/stop_signal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "model/core/error.h"

namespace ripstop {
namespace {

// Ends with code 3 if no signal ends it: each test sends its signals in a process of its own.
[[noreturn]] void send(StopFor purpose, std::initializer_list<int> signals) {
  const StopSignal stop(purpose);
  for (const int signal : signals) raise(signal);
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

TEST(StopSignalTest, ASignalSentTwiceIsOneRequest) {
  EXPECT_EXIT(send(StopFor::kCheckpoint, {SIGTERM, SIGTERM, SIGUSR1}), testing::ExitedWithCode(3), "");
  EXPECT_EXIT(send(StopFor::kCleanUp, {SIGTERM, SIGTERM, SIGHUP}), testing::ExitedWithCode(3), "");
}

TEST(StopSignalTest, ASecondInterruptEndsTheProcessAtOnce) {
  const int requeue = static_cast<int>(ExitCode::kRequeue);
  EXPECT_EXIT(send(StopFor::kCheckpoint, {SIGINT, SIGINT}), testing::ExitedWithCode(requeue), "");
  EXPECT_EXIT(send(StopFor::kCheckpoint, {SIGTERM, SIGINT}), testing::ExitedWithCode(requeue), "");
  EXPECT_EXIT(send(StopFor::kCleanUp, {SIGINT, SIGINT}), testing::KilledBySignal(SIGINT), "");
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
