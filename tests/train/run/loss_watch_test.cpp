#include "train/run/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/expect_has.h"

namespace ripstop {
namespace {

// Steps of a run with the notes of its watch.
class WatchedLosses {
 public:
  // Adds `count` steps; `loss` and `norm` get the number of the step.
  void add(
      int64_t count, const std::function<double(int64_t)>& loss,
      const std::function<double(int64_t)>& norm = [](int64_t) { return 1; }) {
    for (; count > 0; --count) {
      ++step;
      watch.add(step, loss(step), norm(step), [&](const std::string& note) {
        notes.push_back(note);
        told_at.push_back(step);
      });
    }
  }

  int64_t step = 0;
  LossWatch watch;
  std::vector<std::string> notes;
  std::vector<int64_t> told_at;
};

// Normal numbers from 24 uniform ones, alike with every standard library.
class Noise {
 public:
  explicit Noise(unsigned seed) : random_(seed) {}
  double operator()(double deviation) {
    double sum = -12;
    for (int i = 0; i < 24; ++i) sum += static_cast<double>(random_()) / 4294967296.0;
    return deviation * sum / std::sqrt(2.0);
  }

 private:
  std::mt19937 random_;
};

double falling(int64_t step) {
  return 1.8 + 6 * std::pow(static_cast<double>(step), -0.25);
}
double log_normal(Noise& noise, double deviation) {
  return std::exp(noise(deviation));
}

// Several widths of the noise, also one that grows with the loss; norms vary by 40 %.
TEST(LossWatch, NoiseOnAFallingLossIsNoNews) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Noise noise(seed);
    const auto norm = [&](int64_t) { return log_normal(noise, 0.4); };
    for (const double deviation : {0.0, 0.05, 0.1, 0.3}) {
      WatchedLosses run;
      run.add(
          8000, [&](int64_t step) { return falling(step) + noise(deviation); }, norm);
      EXPECT_EQ(run.notes, std::vector<std::string>{}) << seed << ", " << deviation;
    }
    WatchedLosses skewed;
    skewed.add(
        8000, [&](int64_t step) { return falling(step) * log_normal(noise, 0.15); }, norm);
    EXPECT_EQ(skewed.notes, std::vector<std::string>{}) << seed;
  }
}

TEST(LossWatch, AJumpIsToldOnceAtItsThirdStep) {
  Noise noise(1);
  const auto usual = [&](int64_t) { return 2.5 + noise(0.05); };
  const auto high = [&](int64_t) { return 4 + noise(0.05); };
  WatchedLosses run;
  run.add(100, usual);
  run.add(2, high);
  run.add(1, usual);
  EXPECT_TRUE(run.notes.empty()) << "two bad batches";
  run.add(20, high);
  ASSERT_EQ(run.told_at, std::vector<int64_t>{106});
  EXPECT_HAS(run.notes[0], "the loss jumped at step 104, from a mean of 2.5");
  EXPECT_HAS(run.notes[0], " at step 106");
  run.add(10, usual);
  run.add(3, high);
  EXPECT_EQ(run.told_at, (std::vector<int64_t>{106, 136})) << "another jump";
}

// A jump is above both limits: six deviations, here of losses 1.8 and 2.2 in turns, and a fifth of the mean.
TEST(LossWatch, ASmallRiseIsNoJump) {
  const auto told = [](double deviation, double rise) {
    WatchedLosses run;
    run.add(100, [&](int64_t step) { return step % 2 == 0 ? 2 - deviation : 2 + deviation; });
    run.add(3, [&](int64_t) { return 2 + rise; });
    return run.notes.size();
  };
  EXPECT_EQ(told(0.2, 1.1), 0U);
  EXPECT_EQ(told(0.2, 1.3), 1U);
  EXPECT_EQ(told(0, 0.3), 0U);
  EXPECT_EQ(told(0, 0.5), 1U);
}

// After 64 steps the higher loss is the usual one.
TEST(LossWatch, AJumpThatStaysIsTheNewLevel) {
  Noise noise(2);
  WatchedLosses run;
  run.add(100, [&](int64_t) { return 2 + noise(0.05); });
  run.add(250, [&](int64_t) { return 4 + noise(0.05); });
  EXPECT_EQ(run.told_at, std::vector<int64_t>{103});
  run.add(3, [&](int64_t) { return 8 + noise(0.05); });
  EXPECT_EQ(run.told_at, (std::vector<int64_t>{103, 353}));
}

TEST(LossWatch, AStallIsToldOnceUntilTheLossHasFallen) {
  Noise noise(3);
  WatchedLosses run;
  run.add(4000, [&](int64_t step) { return 7 + 1e-4 * static_cast<double>(step) + noise(0.01); });
  ASSERT_EQ(run.told_at, std::vector<int64_t>{512}) << "the first look";
  EXPECT_HAS(run.notes[0], "the loss has not fallen since step 128: its means are 7.0");
  EXPECT_HAS(run.notes[0], " up to steps 256, 384 and 512");
  run.add(8000, [&](int64_t) { return 5 + noise(0.01); });
  run.add(40000, [&](int64_t step) { return 5 + 1e-4 * static_cast<double>(step - 12000) + noise(0.01); });
  EXPECT_EQ(run.notes.size(), 2U) << "it fell, and stalls again";
}

// In noise of 0.2 the quarters' means of a loss that falls by 0.1 often rise.
TEST(LossWatch, ASlowFallInNoiseIsNoStall) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Noise noise(seed);
    WatchedLosses run;
    run.add(5000, [&](int64_t step) { return 2 - 2e-5 * static_cast<double>(step) + noise(0.2); });
    EXPECT_TRUE(run.notes.empty()) << seed << ": " << run.notes.front();
  }
}

TEST(LossWatch, ALossThatFallsAgainDoesNotStall) {
  WatchedLosses run;
  run.add(600, [](int64_t step) { return step <= 256 ? 7.0 : step <= 384 ? 7.1 : 6.9; });
  EXPECT_TRUE(run.notes.empty());
}

TEST(LossWatch, AShortRunDoesNotStall) {
  WatchedLosses run;
  run.add(511, [](int64_t) { return 7; });
  EXPECT_TRUE(run.notes.empty());
  run.add(1, [](int64_t) { return 7; });
  EXPECT_EQ(run.notes.size(), 1U);
}

TEST(LossWatch, ANormThatGrowsIsToldOnceItDoubled) {
  Noise noise(4);
  WatchedLosses run;
  const auto loss = [&](int64_t step) { return falling(step); };
  run.add(640, loss, [&](int64_t) { return log_normal(noise, 0.1); });
  run.add(640, loss, [&](int64_t step) {
    return std::exp(static_cast<double>(step - 640) / 400) * log_normal(noise, 0.1);
  });
  ASSERT_EQ(run.told_at, std::vector<int64_t>{1024});
  EXPECT_HAS(run.notes[0], "the gradient norm grows since step 640: from ");
  EXPECT_HAS(run.notes[0], " at step 1024, in means of 64");
  // Growth by less than the double is none.
  WatchedLosses slow;
  slow.add(1024, loss, [](int64_t step) { return std::exp(static_cast<double>(step) / 3000); });
  EXPECT_TRUE(slow.notes.empty());
}

// A step without targets has no loss, a diverged one no finite loss: other notes tell of them.
TEST(LossWatch, NumbersThatAreNotFiniteAreSkipped) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  WatchedLosses run;
  run.add(100, [](int64_t) { return 2; });
  run.add(
      100, [&](int64_t step) { return step % 2 == 0 ? none : HUGE_VAL; }, [&](int64_t) { return none; });
  run.add(3, [](int64_t) { return 4; });
  EXPECT_EQ(run.told_at, std::vector<int64_t>{203});
  WatchedLosses growing;
  growing.add(1000, falling, [](int64_t step) {
    return step == 100 ? HUGE_VAL : std::exp(static_cast<double>(step) / 400);
  });
  EXPECT_EQ(growing.told_at, std::vector<int64_t>{64 * 7 + 1}) << "one norm was skipped";
}

}  // namespace
}  // namespace ripstop
