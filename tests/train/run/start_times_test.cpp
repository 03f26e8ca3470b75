#include "train/run/start_times.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "train/run/run_report.h"

namespace ripstop {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(StartTimesOfARun, EveryMomentBelongsToOnePart) {
  const double before = process_age_seconds();
  StartTimes times;
  times.enter(&StartupSeconds::mpi);
  sleep_for(0.05);
  times.enter(&StartupSeconds::data);
  sleep_for(0.1);
  times.enter(&StartupSeconds::mpi);
  sleep_for(0.05);
  const StartupSeconds seconds = times.seconds();
  EXPECT_GE(seconds.mpi, 0.1) << "both stretches, the last one still under way";
  EXPECT_GE(seconds.data, 0.1);
  EXPECT_EQ(seconds.weights, 0);
  EXPECT_GE(seconds.program, before);
  EXPECT_NEAR(seconds.total,
              seconds.program + seconds.mpi + seconds.data + seconds.memory + seconds.weights +
                  seconds.resume + seconds.other,
              1e-9);
  EXPECT_NEAR(seconds.total, process_age_seconds(), 0.1 * process_age_seconds() + 0.5);
}

TEST(StartTimesOfARun, TheProcessGetsOlder) {
  const double before = process_age_seconds();
  EXPECT_GE(before, 0);
  sleep_for(0.2);
  EXPECT_GE(process_age_seconds() - before, 0.19);
}

TEST(StartTimesOfARun, TheLineForPeopleHasEveryPart) {
  EXPECT_EQ(
      startup_text({.program = 0.1,
                    .mpi = 0.2,
                    .data = 0.3,
                    .memory = 0.4,
                    .weights = 0.5,
                    .resume = 0.6,
                    .other = 0.7,
                    .first_step = {},
                    .total = 2.8}),
      "started in 2.80 s: program 0.10, MPI 0.20, data 0.30, memory 0.40, weights 0.50, resume 0.60, other "
      "0.70");
}

}  // namespace
}  // namespace ripstop
