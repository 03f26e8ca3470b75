// Tests of messages that move while the main thread computes, and of several collectives under way.
#include "parallel/mpi_progress.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "parallel/communicator.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

// Many messages, as the tests cut them into short pieces.
constexpr int64_t kLong = int64_t{1} << 18;

// Whether the value arrives within a generous time. Does not call MPI.
bool arrives(float& value, float expected) {
  using Clock = std::chrono::steady_clock;
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::seconds(20);) {
    if (std::atomic_ref<float>(value).load() == expected) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(MpiProgressTest, AGatherMovesWhileNobodyCallsMpi) {
  Communicator& group = test_world().communicator();
  const int64_t rank = group.rank(), size = group.size();
  int provided = MPI_THREAD_SERIALIZED;
  if (size > 1) MPI_Query_thread(&provided);
  const Stream stream(Device::cpu());
  std::vector<float> all(static_cast<size_t>(kLong * size), -1.0F);
  const Tensor whole{all.data(), DType::kFloat32, {kLong * size}, Device::cpu()};
  std::fill_n(all.begin() + rank * kLong, kLong, static_cast<float>(rank));
  group.barrier();
  Pending pending = group.all_gather(stream, whole.row_range(rank * kLong, kLong), whole);
  // With an MPI that one thread alone may call, the gather moves in wait().
  if (provided < MPI_THREAD_SERIALIZED) pending.wait();
  for (int64_t r = 0; r < size; ++r)
    EXPECT_TRUE(arrives(all[static_cast<size_t>((r + 1) * kLong - 1)], static_cast<float>(r))) << r;
  pending.wait();
}

// Ranks reach the second halves of all-reduces at different times, and in different orders.
TEST(MpiProgressTest, AllReducesUnderWayTogetherDoNotMix) {
  Communicator& group = test_world().communicator();
  const int64_t rank = group.rank(), size = group.size(), count = 5000;
  const Stream stream(Device::cpu());
  constexpr int64_t kTogether = 3;
  std::vector<std::vector<float>> x(kTogether), scratch(kTogether);
  std::vector<Pending> pending;
  for (size_t i = 0; i < kTogether; ++i) {
    x[i].assign(static_cast<size_t>(count), static_cast<float>(rank + 1 + static_cast<int64_t>(100 * i)));
    scratch[i].resize(static_cast<size_t>(group.all_reduce_scratch_bytes(count, DType::kFloat32) / 4 + 1));
    const Tensor room{scratch[i].data(), DType::kInt32, {std::ssize(scratch[i])}, Device::cpu()};
    const Tensor values{x[i].data(), DType::kFloat32, {count}, Device::cpu()};
    pending.push_back(group.start_all_reduce(stream, values, DType::kFloat32, room, nullptr));
  }
  // Some ranks poll, each in another order; the others start all second halves in their waits.
  for (int64_t k = 0; k < 50 * kTogether && rank % 2 == 0; ++k)
    pending[static_cast<size_t>((k * (rank + 1) + rank) % kTogether)].poll();
  for (size_t i = 0; i < kTogether; ++i) {
    pending[i].wait();
    const auto expected = static_cast<float>(size * (size + 1) / 2 + static_cast<int64_t>(100 * i) * size);
    for (const float value : x[i]) ASSERT_EQ(value, expected) << i;
  }
}

}  // namespace
}  // namespace ripstop
