// Tests the collectives over MPI against plain loops, for the number of ranks that the program is started
// with.
#include "parallel/collectives.h"
#include "parallel/device_mesh.h"
#include "tests/parallel/rank_tests.h"

#include <algorithm>

namespace ripstop {
namespace {

// Numbers of elements: none, one, odd, about a piece, several pieces, enough for several threads.
const int64_t kCounts[] = {0, 1, 3, 249, 250, 251, 1777, 70000};

// The communicators under test: MPI itself, and one staged through host copies, as for tensors of a device.
enum class Path { kMpi, kStaged };

class MpiCommunicatorTest : public testing::TestWithParam<Path> {
 protected:
  const std::unique_ptr<Communicator> staged =
      GetParam() == Path::kMpi ? nullptr
                               : make_staged_communicator(test_world().communicator().split(
                                                              0, test_world().communicator().rank(), "world"),
                                                          Device::cpu());
  Communicator& group = staged == nullptr ? test_world().communicator() : *staged;
  const int64_t rank = group.rank(), size = group.size();
  const Stream stream{Device::cpu()};
  std::vector<float> scratch;

  // The bytes that a planned group of the same shape counts for the same call.
  template <class Call>
  void expect_bytes_as_planned(int64_t before, Call call) {
    const auto planned = make_planned_communicator("planned", rank, size);
    call(*planned);
    EXPECT_EQ(group.bytes_sent() - before, planned->bytes_sent());
  }
};

TEST_P(MpiCommunicatorTest, AllGatherIsInRankOrder) {
  for (const int64_t n : kCounts) {
    std::vector<int32_t> own(static_cast<size_t>(n)), all(static_cast<size_t>(n * size)), expected;
    for (int64_t r = 0; r < size; ++r)
      for (int64_t i = 0; i < n; ++i) expected.push_back(static_cast<int32_t>(r * 1000003 + i));
    std::copy_n(expected.begin() + rank * n, n, own.begin());
    const int64_t before = group.bytes_sent();
    group.all_gather(stream, tensor_of(own), tensor_of(all)).wait();
    EXPECT_EQ(all, expected) << n;
    EXPECT_EQ(group.bytes_sent() - before, n * 4 * (size - 1));
    expect_bytes_as_planned(before, [&](Communicator& planned) {
      planned.all_gather(stream, tensor_of(own), tensor_of(all)).wait();
    });
  }
}

TEST_P(MpiCommunicatorTest, AllGatherInPlace) {
  const int64_t n = 1777;
  std::vector<float> all(static_cast<size_t>(n * size), -1.0F), expected;
  for (int64_t r = 0; r < size; ++r)
    for (const float x : samples<float>(r, n)) expected.push_back(x);
  std::copy_n(expected.begin() + rank * n, n, all.begin() + rank * n);
  const Tensor whole = tensor_of(all);
  group.all_gather(stream, whole.row_range(rank * n, n), whole).wait();
  EXPECT_TRUE(same(all, expected));
}

TEST_P(MpiCommunicatorTest, ManyGathersUnderWayKeepApart) {
  const int64_t n = 400;
  std::vector<std::vector<int32_t>> own(8), all(8);
  std::vector<Pending> pending;
  for (size_t k = 0; k < own.size(); ++k) {
    own[k].assign(n, static_cast<int32_t>(rank * 100 + static_cast<int64_t>(k)));
    all[k].resize(static_cast<size_t>(n * size));
    pending.push_back(group.all_gather(stream, tensor_of(own[k]), tensor_of(all[k])));
  }
  while (!pending.empty()) {
    pending.back().poll();
    pending.back().wait();
    pending.pop_back();
  }
  for (size_t k = 0; k < own.size(); ++k)
    for (int64_t r = 0; r < size; ++r)
      EXPECT_EQ(all[k][static_cast<size_t>(r * n + n - 1)], r * 100 + static_cast<int64_t>(k));
}

// The expected sum of all ranks, in rank order and float32.
float rank_order_sum(int64_t size, int64_t i, int64_t own, bool rounds) {
  float sum = 0;
  for (int64_t r = 0; r < size; ++r) {
    const float x = rounds && r != own ? static_cast<float>(BFloat16(sample(r, i))) : sample(r, i);
    sum = r == 0 ? x : sum + x;
  }
  return sum;
}

TEST_P(MpiCommunicatorTest, ReduceScatterSumsInRankOrder) {
  for (const DType travel : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t n : kCounts) {
      for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
        std::vector<float> whole = samples<float>(rank, n * size), own(static_cast<size_t>(n), 0.5F);
        const int64_t before = group.bytes_sent();
        const Tensor room = scratch_of(scratch, group.reduce_scatter_scratch_bytes(n * size, travel));
        group.reduce_scatter(stream, tensor_of(whole), tensor_of(own), travel, accumulate, room).wait();
        for (int64_t i = 0; i < n; ++i) {
          const float sum = rank_order_sum(size, rank * n + i, rank, travel == DType::kBFloat16);
          const float expected = accumulate == Accumulate::kYes ? 0.5F + sum : sum;
          ASSERT_EQ(own[static_cast<size_t>(i)], expected) << "element " << i << " of " << n;
        }
        EXPECT_EQ(group.bytes_sent() - before, n * element_bytes(travel) * (size - 1));
        expect_bytes_as_planned(before, [&](Communicator& planned) {
          planned.reduce_scatter(stream, tensor_of(whole), tensor_of(own), travel, accumulate, room).wait();
        });
      }
    }
  }
}

TEST_P(MpiCommunicatorTest, ReduceScatterOfBFloat16RoundsOnce) {
  for (const int64_t n : kCounts) {
    std::vector<BFloat16> whole = samples<BFloat16>(rank, n * size), own(static_cast<size_t>(n));
    const std::vector<BFloat16> kept = whole;
    const Tensor room = scratch_of(scratch, group.reduce_scatter_scratch_bytes(n * size, DType::kBFloat16));
    group.reduce_scatter(stream, tensor_of(whole), tensor_of(own), DType::kBFloat16, Accumulate::kNo, room)
        .wait();
    EXPECT_TRUE(same(whole, kept));
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int64_t r = 0; r < size; ++r) sum += static_cast<float>(BFloat16(sample(r, rank * n + i)));
      ASSERT_EQ(own[static_cast<size_t>(i)].bits, BFloat16(sum).bits) << "element " << i << " of " << n;
    }
  }
}

TEST_P(MpiCommunicatorTest, ReduceScatterIntoItsOwnPiece) {
  const int64_t n = 500;
  std::vector<float> whole = samples<float>(rank, n * size);
  const Tensor all = tensor_of(whole);
  const Tensor room = scratch_of(scratch, group.reduce_scatter_scratch_bytes(n * size, DType::kFloat32));
  group.reduce_scatter(stream, all, all.row_range(rank * n, n), DType::kFloat32, Accumulate::kNo, room)
      .wait();
  for (int64_t i = 0; i < n; ++i)
    ASSERT_EQ(whole[static_cast<size_t>(rank * n + i)], rank_order_sum(size, rank * n + i, rank, false));
}

template <class T, class Sum>
void check_all_reduce_of(Communicator& group, const Stream& stream, int64_t n) {
  std::vector<T> x = samples<T>(group.rank(), n), expected(x.size());
  for (int64_t i = 0; i < n; ++i) {
    Sum sum = static_cast<Sum>(static_cast<T>(sample(0, i)));
    for (int64_t r = 1; r < group.size(); ++r) {
      sum += static_cast<Sum>(static_cast<T>(sample(r, i)));
    }
    expected[static_cast<size_t>(i)] = static_cast<T>(sum);
  }
  std::vector<float> memory;
  const Tensor room = scratch_of(memory, group.all_reduce_scratch_bytes(n, DTypeOf<T>::value));
  const int64_t before = group.bytes_sent();
  group.all_reduce(stream, tensor_of(x), room);
  EXPECT_TRUE(same(x, expected)) << n << " " << to_string(DTypeOf<T>::value);
  const auto planned = make_planned_communicator("planned", group.rank(), group.size());
  planned->all_reduce(stream, tensor_of(x), room);
  EXPECT_EQ(group.bytes_sent() - before, planned->bytes_sent());
  const int64_t size = group.size(), part = (n + size - 1) / size * static_cast<int64_t>(sizeof(T));
  EXPECT_LE(group.bytes_sent() - before, 2 * part * (size - 1));
}

TEST_P(MpiCommunicatorTest, AllReduceOfEveryType) {
  for (const int64_t n : kCounts) {
    check_all_reduce_of<float, float>(group, stream, n);
    check_all_reduce_of<double, double>(group, stream, n);
    check_all_reduce_of<BFloat16, float>(group, stream, n);
    check_all_reduce_of<int32_t, int32_t>(group, stream, n);
  }
}

// Terms of other ranks are rounded, the part's own rank adds in float32, and the sum is rounded for all.
TEST_P(MpiCommunicatorTest, AllReduceSentInBFloat16RoundsTermsAndSum) {
  for (const int64_t n : kCounts) {
    if (n < size) continue;
    std::vector<float> x = samples<float>(rank, n), expected(x.size());
    for (int64_t r = 0; r < size; ++r) {
      const Part part = all_reduce_part(n, r, size);
      for (int64_t i = part.first; i < part.first + part.count; ++i)
        expected[static_cast<size_t>(i)] = static_cast<float>(BFloat16(rank_order_sum(size, i, r, size > 1)));
    }
    const Tensor room =
        scratch_of(scratch, group.all_reduce_scratch_bytes(n, DType::kFloat32, DType::kBFloat16));
    const auto sum = [&](Communicator& ranks) {
      ranks.start_all_reduce(stream, tensor_of(x), DType::kBFloat16, room, nullptr).wait();
    };
    const int64_t before = group.bytes_sent();
    sum(group);
    EXPECT_TRUE(same(x, expected)) << n;
    expect_bytes_as_planned(before, sum);
  }
}

TEST_P(MpiCommunicatorTest, BroadcastFromEveryRank) {
  for (const int64_t n : {0, 1, 1777}) {
    for (int64_t root = 0; root < size; ++root) {
      std::vector<float> x = samples<float>(rank, n);
      const int64_t before = group.bytes_sent();
      group.broadcast(stream, tensor_of(x), root);
      EXPECT_TRUE(same(x, samples<float>(root, n)));
      expect_bytes_as_planned(before,
                              [&](Communicator& planned) { planned.broadcast(stream, tensor_of(x), root); });
    }
  }
}

TEST_P(MpiCommunicatorTest, ExchangeAlongARing) {
  for (int64_t shift = 0; shift < size; ++shift) {
    const int64_t to = (rank + shift) % size, from = (rank - shift + size) % size;
    // Messages of different sizes: each rank's number sets the size of its own.
    std::vector<float> send = samples<float>(rank, 300 + 40 * rank),
                       receive(static_cast<size_t>(300 + 40 * from));
    const int64_t before = group.bytes_sent();
    group.exchange(stream, tensor_of(send), to, tensor_of(receive), from);
    EXPECT_TRUE(same(receive, samples<float>(from, 300 + 40 * from)));
    expect_bytes_as_planned(before, [&](Communicator& planned) {
      planned.exchange(stream, tensor_of(send), to, tensor_of(receive), from);
    });
  }
}

// Exchanges with all ranks at once, this one too, and another size for each pair.
TEST_P(MpiCommunicatorTest, ExchangeWithAllRanksAtOnce) {
  const auto count = [](int64_t from, int64_t to) { return 100 * (1 + from) + 7 * to; };
  std::vector<std::vector<float>> send, receive;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t to = (rank + k) % size, from = (rank - k + size) % size;
    send.push_back(samples<float>(10 * rank + to, count(rank, to)));
    receive.emplace_back(static_cast<size_t>(count(from, rank)));
  }
  std::vector<Exchange> exchanges;
  for (int64_t k = 0; k < size; ++k)
    exchanges.push_back({tensor_of(send[static_cast<size_t>(k)]), (rank + k) % size,
                         tensor_of(receive[static_cast<size_t>(k)]), (rank - k + size) % size});
  const int64_t before = group.bytes_sent();
  group.start_exchanges(stream, exchanges).wait();
  for (int64_t k = 0; k < size; ++k) {
    const int64_t from = (rank - k + size) % size;
    EXPECT_TRUE(same(receive[static_cast<size_t>(k)], samples<float>(10 * from + rank, count(from, rank))));
  }
  expect_bytes_as_planned(before,
                          [&](Communicator& planned) { planned.start_exchanges(stream, exchanges).wait(); });
  group.start_exchanges(stream, {}).wait();
}

// A queue of messages from every rank to every other, each of another size than its neighbours.
struct Queue {
  Queue(int64_t rank, int64_t size) {
    for (int64_t peer = 0; peer < size; ++peer)
      for (size_t k = 0; peer != rank && k < std::size(kCounts); ++k) {
        sent.push_back(samples<float>(message(rank, peer, k), kCounts[k]));
        expected.push_back(samples<float>(message(peer, rank, k), kCounts[k]));
        received.emplace_back(expected.back().size());
        peers.push_back(peer);
      }
  }
  static int64_t message(int64_t from, int64_t to, size_t k) {
    return 1 + static_cast<int64_t>(k) + 10 * (from + 10 * to);
  }
  void send(Communicator& group, const Stream& stream, std::vector<Pending>& pending) {
    for (size_t i = 0; i < peers.size(); ++i)
      pending.push_back(group.start_send(stream, tensor_of(sent[i]), peers[i]));
  }
  void receive(Communicator& group, const Stream& stream, std::vector<Pending>& pending) {
    for (size_t i = 0; i < peers.size(); ++i)
      pending.push_back(group.start_receive(stream, tensor_of(received[i]), peers[i], nullptr));
  }
  std::vector<std::vector<float>> sent, received, expected;
  std::vector<int64_t> peers;
};

void wait_backwards(std::vector<Pending>& pending) {
  for (; !pending.empty(); pending.pop_back()) {
    pending.back().poll();
    pending.back().wait();
  }
}

// All ranks send all they have before any of them receives: nothing may wait for room on the way.
TEST_P(MpiCommunicatorTest, MessagesArriveInTheOrderOfTheirSends) {
  Queue queue(rank, size);
  std::vector<Pending> pending;
  const int64_t before = group.bytes_sent();
  const auto send = [&](Communicator& ranks) { queue.send(ranks, stream, pending); };
  send(group);
  int64_t bytes = 0;
  for (const auto& each : queue.sent) bytes += 4 * static_cast<int64_t>(each.size());
  EXPECT_EQ(group.bytes_sent() - before, bytes);
  queue.receive(group, stream, pending);
  EXPECT_EQ(group.bytes_sent() - before, bytes) << "only sends count";
  wait_backwards(pending);
  EXPECT_EQ(queue.received, queue.expected);
  expect_bytes_as_planned(before, send);
}

// Receives that were started long before, and messages that nobody receives yet.
TEST_P(MpiCommunicatorTest, MessagesKeepApartFromCollectives) {
  Queue early(rank, size), late(rank, size);
  std::vector<Pending> receives, sends;
  early.receive(group, stream, receives);
  const int64_t n = 1777;
  std::vector<float> own = samples<float>(rank, n), all(static_cast<size_t>(n * size));
  Pending gather = group.all_gather(stream, tensor_of(own), tensor_of(all));
  early.send(group, stream, sends);
  late.send(group, stream, sends);
  const int64_t to = (rank + 1) % size, from = (rank - 1 + size) % size;
  std::vector<float> sent = samples<float>(rank, n), received(sent.size());
  group.exchange(stream, tensor_of(sent), to, tensor_of(received), from);
  EXPECT_TRUE(same(received, samples<float>(from, n)));
  gather.wait();
  for (int64_t r = 0; r < size; ++r) EXPECT_EQ(all[static_cast<size_t>(r * n + n - 1)], sample(r, n - 1));
  wait_backwards(receives);
  EXPECT_EQ(early.received, early.expected);
  late.receive(group, stream, receives);
  wait_backwards(sends);
  wait_backwards(receives);
  EXPECT_EQ(late.received, late.expected);
}

// Collectives use every tag once while a message is under way.
TEST_P(MpiCommunicatorTest, MessagesKeepApartFromThousandsOfCollectives) {
  if (size == 1) return;
  const auto fresh = group.split(0, rank, "fresh");  // which counts from the first tag on
  const int64_t to = (rank + 1) % size, from = (rank - 1 + size) % size;
  std::vector<int32_t> sent = samples<int32_t>(rank, 1), received(1), all(static_cast<size_t>(size));
  Pending message = fresh->start_send(stream, tensor_of(sent), to);
  for (int k = 0; k < 32760; ++k) fresh->start_exchanges(stream, {}).wait();
  for (int32_t k = 0; k < 16; ++k) {
    std::vector<int32_t> own{static_cast<int32_t>(1000 * rank) + k};
    fresh->all_gather(stream, tensor_of(own), tensor_of(all)).wait();
    for (int64_t r = 0; r < size; ++r) EXPECT_EQ(all[static_cast<size_t>(r)], 1000 * r + k);
  }
  fresh->start_receive(stream, tensor_of(received), from, nullptr).wait();
  message.wait();
  EXPECT_EQ(received, samples<int32_t>(from, 1));
}

TEST_P(MpiCommunicatorTest, NoRankSendsToItself) {
  std::vector<float> x(3);
  EXPECT_THROW(group.start_send(stream, tensor_of(x), rank).wait(), Error);
  EXPECT_THROW(group.start_receive(stream, tensor_of(x), rank, nullptr).wait(), Error);
  EXPECT_THROW(group.start_send(stream, tensor_of(x), size).wait(), Error);
}

TEST_P(MpiCommunicatorTest, TextsOfAllRanks) {
  const int64_t before = group.bytes_sent();
  const auto texts = group.all_gather_text(std::string(static_cast<size_t>(rank * 700), 'a'));
  ASSERT_EQ(static_cast<int64_t>(texts.size()), size);
  for (int64_t r = 0; r < size; ++r)
    EXPECT_EQ(texts[static_cast<size_t>(r)], std::string(static_cast<size_t>(r * 700), 'a'));
  group.barrier();
  EXPECT_EQ(group.bytes_sent(), before) << "only tensors count";
}

TEST_P(MpiCommunicatorTest, SplitOrdersByKey) {
  const auto backwards = group.split(0, size - rank, "backwards");
  EXPECT_EQ(backwards->rank(), size - 1 - rank);
  EXPECT_EQ(backwards->name(), "backwards");
  const auto parity = group.split(rank % 2, rank, "parity");
  EXPECT_EQ(parity->size(), (size + (rank % 2 == 0 ? 1 : 0)) / 2);
  std::vector<int32_t> own{static_cast<int32_t>(rank)}, all(static_cast<size_t>(parity->size()));
  parity->all_gather(stream, tensor_of(own), tensor_of(all)).wait();
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<int32_t>(2 * i) + rank % 2);
}

TEST_P(MpiCommunicatorTest, SameBitsEveryTime) {
  const int64_t n = 5000;
  std::vector<float> first;
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<float> x = samples<float>(rank, n);
    group.all_reduce(stream, tensor_of(x),
                     scratch_of(scratch, group.all_reduce_scratch_bytes(n, DType::kFloat32)));
    if (turn == 0) first = x;
    ASSERT_TRUE(same(x, first));
  }
}

TEST_P(MpiCommunicatorTest, DroppedPendingWaits) {
  std::vector<float> own = samples<float>(rank, 3000), all(static_cast<size_t>(3000 * size));
  { const Pending pending = group.all_gather(stream, tensor_of(own), tensor_of(all)); }
  for (int64_t r = 0; r < size; ++r) EXPECT_EQ(all[static_cast<size_t>(r * 3000 + 2999)], sample(r, 2999));
}

INSTANTIATE_TEST_SUITE_P(Paths, MpiCommunicatorTest, testing::Values(Path::kMpi, Path::kStaged),
                         [](const auto& info) { return info.param == Path::kMpi ? "mpi" : "staged"; });

}  // namespace
}  // namespace ripstop
