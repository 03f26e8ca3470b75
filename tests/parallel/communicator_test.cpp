// Tests of the groups that send nothing, and of the arithmetic that all groups share.
#include "parallel/communicator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "parallel/collectives.h"
#include "parallel/round_to_bfloat16.h"

namespace ripstop {
namespace {

template <class T>
Tensor tensor_of(std::vector<T>& x) {
  return {x.data(), DTypeOf<T>::value, Shape{static_cast<int64_t>(x.size())}, Device::cpu()};
}

TEST(AllReducePart, CoversAllWithPartsThatDifferByOneAtMost) {
  for (int64_t count = 0; count < 40; ++count)
    for (int64_t size = 1; size < 12; ++size) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < size; ++rank) {
        const Part part = all_reduce_part(count, rank, size);
        EXPECT_EQ(part.first, next);
        EXPECT_LE(part.count, all_reduce_part(count, 0, size).count);
        EXPECT_GE(part.count, count / size);
        next += part.count;
      }
      EXPECT_EQ(next, count);
    }
}

TEST(Broadcast, EveryRankButTheRootIsSentToOnce) {
  for (int64_t size = 1; size < 20; ++size)
    for (int64_t root = 0; root < size; ++root) {
      int64_t sent = 0;
      for (int64_t rank = 0; rank < size; ++rank) sent += broadcast_children(rank, root, size);
      EXPECT_EQ(sent, size - 1);
    }
}

TEST(SelfCommunicator, CopiesAndSendsNothing) {
  const Stream stream(Device::cpu());
  const auto self = make_self_communicator("fsdp");
  std::vector<float> x{1, 2, 3}, y(3), scratch(1);
  self->all_gather(stream, tensor_of(x), tensor_of(y)).wait();
  EXPECT_EQ(y, x);
  self->reduce_scatter(stream, tensor_of(x), tensor_of(y), DType::kBFloat16, Accumulate::kYes,
                       tensor_of(scratch))
      .wait();
  EXPECT_EQ(y, (std::vector<float>{2, 4, 6}));
  self->reduce_scatter(stream, tensor_of(x), tensor_of(y), DType::kFloat32, Accumulate::kNo,
                       tensor_of(scratch))
      .wait();
  EXPECT_EQ(y, x);
  self->all_reduce(stream, tensor_of(y), tensor_of(scratch));
  self->broadcast(stream, tensor_of(y), 0);
  EXPECT_EQ(y, x);
  std::vector<float> z(3);
  self->exchange(stream, tensor_of(x), 0, tensor_of(z), 0);
  EXPECT_EQ(z, x);
  EXPECT_EQ(self->all_gather_text("a"), std::vector<std::string>{"a"});
  EXPECT_EQ(self->bytes_sent(), 0);
  EXPECT_EQ(self->split(3, 0, "tensor")->name(), "tensor");
  EXPECT_THROW(self->broadcast(stream, tensor_of(x), 1), Error);
  EXPECT_THROW(self->start_send(stream, tensor_of(x), 0).wait(), Error);
  EXPECT_THROW(self->start_receive(stream, tensor_of(x), 0, nullptr).wait(), Error);
}

TEST(PlannedCommunicator, CountsAndMovesNothing) {
  const Device meta = Device::meta(DeviceKind::kCpu);
  const Stream stream(meta);
  const auto group = make_planned_communicator("fsdp", 1, 4);
  const auto of = [&](int64_t n, DType dtype) { return Tensor{nullptr, dtype, Shape{n}, meta}; };
  group->all_gather(stream, of(10, DType::kBFloat16), of(40, DType::kBFloat16)).wait();
  EXPECT_EQ(group->bytes_sent(), 10 * 2 * 3);
  const int64_t room = group->reduce_scatter_scratch_bytes(40, DType::kBFloat16);
  EXPECT_EQ(room, 10 * 2 * 3);
  group
      ->reduce_scatter(stream, of(40, DType::kFloat32), of(10, DType::kFloat32), DType::kBFloat16,
                       Accumulate::kYes, of(15, DType::kFloat32))
      .wait();
  EXPECT_EQ(group->bytes_sent(), 2 * 10 * 2 * 3);
  // 6 elements over 4 ranks: 2, 2, 1, 1. Rank 1 sends the 4 elements of other parts once, and its own 2 to
  // three ranks.
  group->all_reduce(stream, of(6, DType::kFloat64), of(12, DType::kFloat32));
  EXPECT_EQ(group->bytes_sent(), 2 * 10 * 2 * 3 + (4 + 6) * 8);
  // The same parts in bfloat16.
  EXPECT_EQ(group->all_reduce_scratch_bytes(6, DType::kFloat32, DType::kBFloat16), 2 * 3 * 2);
  group->start_all_reduce(stream, of(6, DType::kFloat32), DType::kBFloat16, of(3, DType::kFloat32), nullptr)
      .wait();
  EXPECT_EQ(group->bytes_sent(), 2 * 10 * 2 * 3 + (4 + 6) * (8 + 2));
}

TEST(PlannedCommunicator, CountsMessagesOfTheirSender) {
  const Stream stream(Device::meta(DeviceKind::kCpu));
  std::vector<std::pair<std::string, int64_t>> seen;
  const auto group = make_planned_communicator(
      "pipeline", 1, 4, DeviceKind::kCpu,
      [&](const char* operation, int64_t bytes) { seen.emplace_back(operation, bytes); });
  const Tensor x{nullptr, DType::kBFloat16, {5, 6}, stream.device()};
  group->start_send(stream, x, 2).wait();
  group->start_receive(stream, x, 0, nullptr).wait();
  EXPECT_EQ(group->bytes_sent(), 5 * 6 * 2);
  EXPECT_EQ(seen, (std::vector<std::pair<std::string, int64_t>>{{"send", 60}, {"receive", 0}}));
  EXPECT_THROW(group->start_send(stream, x, 1).wait(), Error);
  EXPECT_THROW(group->start_receive(stream, x, 4, nullptr).wait(), Error);
}

TEST(Collectives, RefuseTensorsThatDoNotFit) {
  const Stream stream(Device::cpu());
  const auto group = make_planned_communicator("fsdp", 0, 2);
  std::vector<float> three(3), four(4), none;
  std::vector<BFloat16> two_short(2);
  std::vector<double> wide(4);
  const auto t = [](auto& x) { return tensor_of(x); };
  EXPECT_THROW(group->all_gather(stream, t(three), t(four)).wait(), Error);
  EXPECT_THROW(group->all_gather(stream, t(two_short), t(four)).wait(), Error);
  const auto reduce = [&](const Tensor& whole, const Tensor& own, DType travel, const Tensor& scratch) {
    group->reduce_scatter(stream, whole, own, travel, Accumulate::kNo, scratch).wait();
  };
  std::vector<float> two(2);
  EXPECT_NO_THROW(reduce(t(four), t(two), DType::kFloat32, t(two)));
  EXPECT_THROW(reduce(t(four), t(two), DType::kFloat32, t(none)), Error) << "no scratch";
  EXPECT_THROW(reduce(t(four), t(three), DType::kFloat32, t(two)), Error);
  EXPECT_THROW(reduce(t(wide), t(two), DType::kFloat32, t(two)), Error);
  EXPECT_THROW(group->all_reduce(stream, t(four), t(none)), Error) << "no scratch";
  const auto sum = [&](const Tensor& x, DType travel) {
    group->start_all_reduce(stream, x, travel, t(wide), nullptr).wait();
  };
  EXPECT_NO_THROW(sum(t(four), DType::kBFloat16));
  EXPECT_THROW(sum(t(wide), DType::kBFloat16), Error) << "only float32 is rounded";
  EXPECT_THROW(sum(t(two_short), DType::kFloat32), Error);
  EXPECT_THROW(sum(t(four).row_range(0, 1), DType::kBFloat16), Error) << "fewer than ranks";
  EXPECT_THROW(group->exchange(stream, t(two), 0, t(two), 1), Error);
  EXPECT_THROW(group->exchange(stream, t(two), 2, t(two), 1), Error);
  EXPECT_THROW(make_planned_communicator("fsdp", 2, 2), Error);
}

TEST(RankSum, AddsInOrderAndRoundsOnce) {
  // 2^-24 is lost if it is added to 1 alone, and counts if the small numbers are added first.
  const Stream stream(Device::cpu());
  const float tiny = std::ldexp(1.0F, -24);
  std::vector<float> big{1.0F}, small_a{tiny}, small_b{tiny}, out{0.0F};
  const auto sum = [&](const std::vector<float>& a, const std::vector<float>& b,
                       const std::vector<float>& c) {
    reduce_pieces(stream,
                  {{a.data(), DType::kFloat32}, {b.data(), DType::kFloat32}, {c.data(), DType::kFloat32}},
                  tensor_of(out), Accumulate::kNo);
    return out[0];
  };
  EXPECT_EQ(sum(big, small_a, small_b), 1.0F);
  EXPECT_EQ(sum(small_a, small_b, big), 1.0F + 2 * tiny);
}

TEST(RankSum, RoundsInPlace) {
  for (const int64_t n : {0, 1, 7, 2047, 2048, 2049, 10000}) {
    std::vector<float> x(static_cast<size_t>(n));
    std::vector<uint16_t> expected(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::sin(static_cast<float>(i)) * 1e3F;
      expected[i] = BFloat16(x[i]).bits;
    }
    round_to_bfloat16(x.data(), n);
    if (n == 0) continue;
    EXPECT_EQ(std::memcmp(x.data(), expected.data(), expected.size() * 2), 0) << n;
  }
}

TEST(Pending, OfNothingIsDone) {
  Pending pending;
  EXPECT_TRUE(pending.done());
  pending.poll();
  pending.wait();
}

// Counts the calls of wait().
class Counted final : public Pending::Operation {
 public:
  explicit Counted(int& waits) : waits_(&waits) {}
  void wait(const Stream&) override { ++*waits_; }
  bool poll() override { return true; }

 private:
  int* waits_;
};

TEST(Pending, WaitsOnceWhateverBecomesOfIt) {
  const Stream stream(Device::cpu());
  int waits = 0;
  const auto start = [&] { return Pending(std::make_unique<Counted>(waits), stream); };
  {
    Pending a = start();
    Pending b = std::move(a);
    EXPECT_EQ(waits, 0);
    b.wait();
    b.wait();
  }
  EXPECT_EQ(waits, 1);
  {
    Pending a = start();
    a = start();
    EXPECT_EQ(waits, 2) << "what is overwritten is waited for";
  }
  EXPECT_EQ(waits, 3) << "what is dropped is waited for";
  try {
    const Pending a = start();
    throw Error(ExitCode::kBug, "any");
  } catch (const Error&) {
  }
  EXPECT_EQ(waits, 3) << "what an error drops is abandoned";
}

}  // namespace
}  // namespace ripstop
