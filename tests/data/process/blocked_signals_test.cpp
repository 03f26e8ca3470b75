#include "data/process/blocked_signals.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <thread>

namespace ripstop {
namespace {

bool takes(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, signal) == 0;
}

TEST(BlockedSignals, BlocksAllButFaultsAndRestores) {
  {
    const BlockedSignals blocked;
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGCHLD})
      EXPECT_FALSE(takes(signal)) << signal;
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) EXPECT_TRUE(takes(fault)) << fault;
  }
  EXPECT_TRUE(takes(SIGTERM));
}

TEST(BlockedSignals, BlocksThoseNamedBesideTheOthers) {
  const BlockedSignals outer(std::array{SIGUSR1});
  {
    const BlockedSignals inner(std::array{SIGUSR2});
    EXPECT_FALSE(takes(SIGUSR1));
    EXPECT_FALSE(takes(SIGUSR2));
    EXPECT_TRUE(takes(SIGTERM));
  }
  EXPECT_FALSE(takes(SIGUSR1));
  EXPECT_TRUE(takes(SIGUSR2));
}

TEST(BlockedSignals, AThreadKeepsWhatWasBlockedUntilItUnblocksIt) {
  bool first = true, second = false;
  std::thread thread;
  {
    const BlockedSignals blocked;
    thread = std::thread([&] {
      first = takes(SIGTERM) || takes(SIGHUP);
      unblock_signals(std::array{SIGTERM});
      second = takes(SIGTERM) && !takes(SIGHUP);
    });
  }
  thread.join();
  EXPECT_FALSE(first);
  EXPECT_TRUE(second);
}

}  // namespace
}  // namespace ripstop
