#include "data/process/background_work.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <stdexcept>

namespace ripstop {
namespace {

using std::chrono::milliseconds;

TEST(BackgroundWork, TellsWhenItIsDoneAndWhatItThrew) {
  std::atomic<bool> may_end = false;
  BackgroundWork work([&](const BackgroundWork&) {
    while (!may_end) std::this_thread::sleep_for(milliseconds(1));
    throw std::runtime_error("no room");
  });
  EXPECT_FALSE(work.wait(milliseconds(1)));
  EXPECT_FALSE(work.is_done());
  may_end = true;
  while (!work.wait(milliseconds(1000))) continue;
  EXPECT_TRUE(work.is_done());
  EXPECT_THROW(work.rethrow(), std::runtime_error);
}

TEST(BackgroundWork, TheDestructorStopsItAndWaits) {
  std::atomic<bool> ended = false;
  {
    const BackgroundWork work([&](const BackgroundWork& self) {
      while (!self.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

TEST(BackgroundWork, TakesNoSignals) {
  sigset_t mask;
  BackgroundWork work([&](const BackgroundWork&) { pthread_sigmask(SIG_SETMASK, nullptr, &mask); });
  while (!work.wait(milliseconds(1000))) continue;
  work.rethrow();
  EXPECT_EQ(sigismember(&mask, SIGUSR1), 1);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGUSR1), 0) << "the caller's mask is as before";
}

int nice_of_thread() {
  return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
}

TEST(BackgroundWork, YieldsTheProcessorsWithTheThreadsThatItStarts) {
  const int before = nice_of_thread();
  int own = 0, started = 0;
  BackgroundWork work([&](const BackgroundWork& self) {
    self.yield_processors();
    own = nice_of_thread();
    std::thread([&] { started = nice_of_thread(); }).join();
  });
  while (!work.wait(milliseconds(1000))) continue;
  EXPECT_EQ(own, 10);
  EXPECT_EQ(started, 10);
  EXPECT_EQ(nice_of_thread(), before);
}

/// Makes the start of threads fail while it lives: their default stack is larger than any address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 50);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

// nice cannot be undone: the training thread would stay slow.
TEST(BackgroundWork, WithoutAThreadTheOwnersDoesTheWorkAndYieldsNothing) {
  const NoThreads none;
  const int before = nice_of_thread();
  std::thread::id worker;
  BackgroundWork work([&](const BackgroundWork& self) {
    self.yield_processors();
    worker = std::this_thread::get_id();
  });
  EXPECT_TRUE(work.is_done());
  EXPECT_EQ(worker, std::this_thread::get_id());
  EXPECT_EQ(nice_of_thread(), before);
}

}  // namespace
}  // namespace ripstop
