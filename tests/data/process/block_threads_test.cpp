#include "data/process/block_threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ripstop {
namespace {

constexpr auto kWatchNothing = [](int64_t) {};
// So many blocks that a call ends only because it starts no more of them.
constexpr int64_t kEndless = int64_t{1} << 50;

// Long enough for the other threads to start a block.
void pause() {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(BlockThreads, TakeEveryNumberOnce) {
  for (const int64_t count : {0, 1, 3, 100}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
    std::atomic<int> under_way = 0, most = 0;
    const auto threads = static_cast<int>(std::min<int64_t>(count, 3));
    std::vector<std::atomic<int>> of_thread(3);
    share_blocks(
        count, 3,
        [&](int64_t thread, int64_t number) {
          const int now = ++under_way;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          EXPECT_EQ(++of_thread.at(static_cast<size_t>(thread)), 1)
              << "its memory belongs to one call at a time";
          ++calls.at(static_cast<size_t>(number));
          // The first blocks wait until all threads have a block.
          for (int i = 0; i < 10000 && number < threads && most < threads; ++i) pause();
          --of_thread[static_cast<size_t>(thread)];
          --under_way;
        },
        kWatchNothing);
    for (const auto& number : calls) EXPECT_EQ(number, 1);
    EXPECT_EQ(most, threads) << "they work at once";
  }
}

// The same input must fail with the same message at any speed of the threads.
TEST(BlockThreads, ThrowWhatTheLowestNumberThrew) {
  for (int round = 0; round < 20; ++round) {
    try {
      share_blocks(
          kEndless, 4,
          [&](int64_t, int64_t number) {
            if (number == 5) pause();
            if (number == 5 || number == 7) throw std::runtime_error(std::to_string(number));
          },
          kWatchNothing);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "5");
    }
  }
}

TEST(BlockThreads, TellTheCallersThreadWhichMayEndThem) {
  const std::thread::id own = std::this_thread::get_id();
  int64_t told = 0;
  share_blocks(
      9, 2, [&](int64_t, int64_t) { EXPECT_NE(std::this_thread::get_id(), own); },
      [&](int64_t done) {
        EXPECT_EQ(std::this_thread::get_id(), own);
        EXPECT_GE(done, told);
        told = done;
      });
  EXPECT_EQ(told, 9);
  std::atomic<int64_t> begun = 0, ended = 0;
  const auto stopped = [&] {
    share_blocks(
        kEndless, 2,
        [&](int64_t, int64_t) {
          ++begun;
          pause();
          ++ended;
        },
        [](int64_t) { throw std::runtime_error("stop"); });
  };
  EXPECT_THROW(stopped(), std::runtime_error);
  EXPECT_EQ(begun, ended) << "no thread outlives the call";
}

}  // namespace
}  // namespace ripstop
