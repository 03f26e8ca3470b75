// Collectives over NCCL on the emulated GPU (tests/emulated_device/nccl_fixture.h).
#include <algorithm>
#include <cmath>

#include "parallel/group_memory.h"
#include "parallel/mesh_axes.h"
#include "parallel/nccl_group.h"
#include "tests/emulated_device/nccl_fixture.h"
#include "tests/emulated_device/scheduler.h"
#include "tests/expect_error.h"

namespace ripstop {
namespace {

template <class T>
double number(const T& x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return static_cast<float>(x);
}

// The largest difference of two elements. Tests go on after it is too large, since the other ranks do.
template <class T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double here = std::abs(number(a[i]) - number(b[i]));
    if (!(here <= largest) && !std::isnan(largest)) largest = here;  // a NaN stays
  }
  return largest;
}

}  // namespace

TEST_F(NcclRanks, AllGatherAsOverMpi) {
  for (const int64_t n : kCounts) {
    check_gather<float>(*nccl, n);
    check_gather<BFloat16>(*nccl, n);
  }
}

TEST_F(NcclRanks, AllGatherInPlace) {
  const int64_t n = 50000;
  std::vector<float> all(static_cast<size_t>(n * size), -1.0F), expected;
  for (int64_t r = 0; r < size; ++r)
    for (const float x : samples<float>(r, n)) expected.push_back(x);
  std::copy_n(expected.begin() + rank * n, n, all.begin() + rank * n);
  const Copy<float> whole = copy_of(all);
  nccl->all_gather(stream, whole.tensor.row_range(rank * n, n), whole.tensor).wait();
  EXPECT_TRUE(same(whole.back(stream), expected));
}

template <class T>
void NcclRanks::check_reduce_scatter(int64_t n, DType travel, Accumulate accumulate) {
  std::vector<T> whole = samples<T>(rank, n * size), own(static_cast<size_t>(n), T(0.5F));
  const Copy<T> from = copy_of(whole), to = copy_of(own);
  const Copy<float> room = scratch(nccl->reduce_scatter_scratch_bytes(n * size, travel));
  nccl->reduce_scatter(stream, from.tensor, to.tensor, travel, accumulate, room.tensor).wait();
  const std::vector<T> got = to.back(stream);
  const Tensor mpi_room = scratch_of(mpi_scratch, mpi.reduce_scatter_scratch_bytes(n * size, travel));
  mpi.reduce_scatter(host, tensor_of(whole), tensor_of(own), travel, accumulate, mpi_room).wait();
  // Numbers in bfloat16 are summed in rank order everywhere; NCCL's own sums have another order.
  if (travel == DType::kBFloat16) {
    EXPECT_TRUE(same(got, own)) << n;
    return;
  }
  EXPECT_LE(distance(got, own), 1e-4) << n;
}

TEST_F(NcclRanks, ReduceScatterAsOverMpi) {
  for (const int64_t n : kCounts)
    for (const Accumulate accumulate : {Accumulate::kNo, Accumulate::kYes}) {
      check_reduce_scatter<float>(n, DType::kFloat32, accumulate);
      check_reduce_scatter<float>(n, DType::kBFloat16, accumulate);
      check_reduce_scatter<BFloat16>(n, DType::kBFloat16, accumulate);
    }
}

TEST_F(NcclRanks, ReduceScatterIntoItsOwnPiece) {
  const int64_t n = 40000;
  std::vector<float> whole = samples<float>(rank, n * size);
  const Copy<float> all = copy_of(whole);
  const Copy<float> room = scratch(nccl->reduce_scatter_scratch_bytes(n * size, DType::kFloat32));
  nccl->reduce_scatter(stream, all.tensor, all.tensor.row_range(rank * n, n), DType::kFloat32,
                       Accumulate::kNo, room.tensor)
      .wait();
  const std::vector<float> got = all.back(stream);
  for (int64_t i = 0; i < n; ++i) {
    float sum = 0;
    for (int64_t r = 0; r < size; ++r) sum += sample(r, rank * n + i);
    ASSERT_NEAR(got[static_cast<size_t>(rank * n + i)], sum, 1e-4);
  }
}

template <class T>
void NcclRanks::check_all_reduce(int64_t n, double tolerance, DType travel) {
  std::vector<T> x = samples<T>(rank, n);
  const Copy<T> copy = copy_of(x);
  const auto bytes = [&](const Communicator& group) {
    return group.all_reduce_scratch_bytes(n, DTypeOf<T>::value, travel);
  };
  const Copy<float> room = scratch(bytes(*nccl));
  nccl->start_all_reduce(stream, copy.tensor, travel, room.tensor, nullptr).wait();
  const std::vector<T> got = copy.back(stream);
  mpi.start_all_reduce(host, tensor_of(x), travel, scratch_of(mpi_scratch, bytes(mpi)), nullptr).wait();
  EXPECT_LE(distance(got, x), tolerance) << n << " " << to_string(DTypeOf<T>::value);
  // All ranks have the same bits.
  std::vector<T> first = got;
  mpi.broadcast(host, tensor_of(first), 0);
  EXPECT_TRUE(same(got, first));
}

TEST_F(NcclRanks, AllReduceOfEveryType) {
  for (const int64_t n : {int64_t{1}, 2 * size - 1, int64_t{1777}, int64_t{70000}}) {
    // Both back ends add in rank order and round alike.
    if (n >= size) check_all_reduce<float>(n, 0, DType::kBFloat16);
    check_all_reduce<float>(n, 1e-4);
    check_all_reduce<double>(n, 1e-12);
    check_all_reduce<BFloat16>(n, 0.5 * static_cast<double>(size));
    check_all_reduce<int32_t>(n, 0);
  }
}

TEST_F(NcclRanks, BroadcastFromEveryRank) {
  for (const int64_t n : kCounts)
    for (int64_t root = 0; root < size; ++root) {
      const Copy<float> x = copy_of(samples<float>(rank, n));
      nccl->broadcast(stream, x.tensor, root);
      EXPECT_TRUE(same(x.back(stream), samples<float>(root, n)));
    }
}

TEST_F(NcclRanks, ExchangeAlongARing) {
  for (const int64_t unit : {10, 30000})
    for (int64_t shift = 0; shift < size; ++shift) {
      const int64_t to = (rank + shift) % size, from = (rank - shift + size) % size;
      const Copy<float> send = copy_of(samples<float>(rank, unit * (rank + 1)));
      const Copy<float> receive = copy_of(std::vector<float>(static_cast<size_t>(unit * (from + 1))));
      nccl->exchange(stream, send.tensor, to, receive.tensor, from);
      EXPECT_TRUE(same(receive.back(stream), samples<float>(from, unit * (from + 1))));
    }
}

// All other ranks at once, with a size for each pair of ranks.
TEST_F(NcclRanks, ExchangeWithAllPeersAtOnce) {
  const auto count = [](int64_t from, int64_t to) { return 1000 * (1 + from) + 7 * to; };
  std::vector<Copy<float>> send, receive;
  std::vector<Exchange> exchanges;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t to = (rank + k) % size, from = (rank - k + size) % size;
    send.push_back(copy_of(samples<float>(10 * rank + to, count(rank, to))));
    receive.push_back(copy_of(std::vector<float>(static_cast<size_t>(count(from, rank)))));
    exchanges.push_back({send.back().tensor, to, receive.back().tensor, from});
  }
  const int64_t before = nccl->bytes_sent();
  nccl->start_exchanges(stream, exchanges).wait();
  int64_t sent = 0;
  for (int64_t k = 0; k < size; ++k) {
    const int64_t to = (rank + k) % size, from = (rank - k + size) % size;
    EXPECT_TRUE(same(receive[static_cast<size_t>(k)].back(stream),
                     samples<float>(10 * from + rank, count(from, rank))));
    if (k > 0) sent += 4 * count(rank, to);
  }
  EXPECT_EQ(nccl->bytes_sent() - before, sent);
}

// Collectives of several groups and sizes under way at once, each before work on the caller's stream that
// overwrites its input as soon as it may.
TEST_F(NcclRanks, ManyUnderWayKeepApart) {
  const std::unique_ptr<Communicator> other = nccl->split(0, size - rank, "backwards");
  const int64_t n = 3000;
  std::vector<std::vector<int32_t>> own;
  std::vector<Copy<int32_t>> from, to;
  for (int32_t k = 0; k < 12; ++k) {
    own.emplace_back(n * (1 + k % 3), static_cast<int32_t>(rank) * 100 + k);
    from.push_back(copy_of(own.back()));
    to.push_back(copy_of(std::vector<int32_t>(own.back().size() * static_cast<size_t>(size))));
  }
  const Copy<int32_t> zeros = copy_of(std::vector<int32_t>(static_cast<size_t>(3 * n)));
  std::vector<Pending> pending;
  for (size_t k = 0; k < from.size(); ++k)
    pending.push_back((k % 2 == 0 ? *nccl : *other).all_gather(stream, from[k].tensor, to[k].tensor));
  for (size_t k = 0; k < from.size(); ++k) {
    pending[k].wait();
    copy_bytes(stream, from[k].tensor.data, zeros.tensor.data, from[k].tensor.bytes());
  }
  for (size_t k = 0; k < from.size(); ++k) {
    const std::vector<int32_t> got = to[k].back(stream);
    for (int64_t r = 0; r < size; ++r) {
      const int64_t source = k % 2 == 0 ? r : size - 1 - r;
      const auto begin = static_cast<size_t>(r) * own[k].size();
      EXPECT_EQ(got[begin], source * 100 + static_cast<int64_t>(k));
      EXPECT_EQ(got[begin + own[k].size() - 1], source * 100 + static_cast<int64_t>(k));
    }
  }
}

TEST_F(NcclRanks, SplitsOfSplits) {
  const std::unique_ptr<Communicator> backwards = nccl->split(0, size - rank, "backwards");
  EXPECT_EQ(backwards->rank(), size - 1 - rank);
  const std::unique_ptr<Communicator> parity = nccl->split(rank % 2, rank, "parity");
  EXPECT_EQ(parity->size(), (size + 1 - rank % 2) / 2);
  // A group of one rank is none of NCCL's; its rank takes part in the split all the same, and in the next.
  const std::unique_ptr<Communicator> alone = nccl->split(rank, rank, "alone");
  EXPECT_EQ(alone->size(), 1);
  const std::unique_ptr<Communicator> tail = nccl->split(rank == 0 ? 0 : 1, rank, "tail");
  EXPECT_EQ(tail->size(), rank == 0 ? 1 : size - 1);
  const std::unique_ptr<Communicator> nested =
      backwards->split(backwards->rank() / 2, backwards->rank(), "nested");
  for (Communicator* group : {backwards.get(), parity.get(), tail.get(), nested.get()}) {
    check_gather<float>(*group, 1777);
    check_gather<BFloat16>(*group, 3);
  }
}

// Sends connect ranks at their first use. A call on another group right after must not disturb that.
TEST_F(NcclRanks, AnotherGroupIsUsedRightAfterAFirstSend) {
  const std::unique_ptr<Communicator> second = nccl->split(0, rank, "second");
  const int64_t n = 1000, to = (rank + 1) % size, from = (rank - 1 + size) % size;
  const Copy<float> send = copy_of(samples<float>(rank, n));
  const Copy<float> receive = copy_of(std::vector<float>(n)),
                    all = copy_of(std::vector<float>(static_cast<size_t>(n * size)));
  for (Communicator* group : {nccl.get(), second.get()}) {
    const Exchange one{send.tensor, to, receive.tensor, from};
    Pending exchange = group->start_exchanges(stream, {&one, 1});
    Pending gather = (group == nccl.get() ? *second : *nccl).all_gather(stream, send.tensor, all.tensor);
    exchange.wait();
    gather.wait();
    EXPECT_TRUE(same(receive.back(stream), samples<float>(from, n)));
    EXPECT_EQ(all.back(stream)[static_cast<size_t>(from * n + 7)], sample(from, 7));
  }
}

TEST_F(NcclRanks, AWindowIsThereWhenRegistrationReturns) {
  MemoryUse use;
  use[MemoryCategory::kWeights] = int64_t{2} << 20;
  const Buffer memory(device, ledger, use, nccl->memory_source());
  const auto registration = nccl->register_memory(memory.data(), memory.bytes());
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(registration->is_window(), version >= NCCL_VERSION(2, 27, 3));
}

TEST_F(NcclRanks, RegisteredMemoryOfTwoGroups) {
  const int64_t n = 64 * 1024;
  const std::unique_ptr<Communicator> second = nccl->split(0, rank, kFsdpAxis);
  MemoryUse use;
  use[MemoryCategory::kWeights] = n * 4;
  use[MemoryCategory::kCommunication] = n * 4 * size;
  for (int turn = 0; turn < 3; ++turn) {
    GroupMemory memory(device, ledger, use, {nccl.get(), second.get()});
    const Tensor own = memory.take(MemoryCategory::kWeights, DType::kFloat32, {n});
    const Tensor all = memory.take(MemoryCategory::kCommunication, DType::kFloat32, {n * size});
    memory.check_all_taken();
    for (Communicator* group : {nccl.get(), second.get()}) {
      const std::vector<float> x = samples<float>(rank + turn, n);
      copy_bytes(stream, own.data, x.data(), own.bytes());
      group->all_gather(stream, own, all).wait();
      std::vector<float> got(static_cast<size_t>(n * size));
      copy_bytes(stream, got.data(), all.data, all.bytes());
      stream.synchronize();
      for (int64_t r = 0; r < size; ++r)
        EXPECT_EQ(got[static_cast<size_t>(r * n + n - 1)], sample(r + turn, n - 1));
    }
    // Still under way when the registration ends, which waits for it.
    nccl->all_gather(stream, own, all).wait();
    second->all_gather(stream, own, all).wait();
  }
}

// Memory of NCCL is zero for every stream at once, and stays until its work is done.
TEST_F(NcclRanks, MemoryOfNcclIsZeroAndOutlivesItsWork) {
  MemoryUse use;
  use[MemoryCategory::kWeights] = 4096;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    emulated::Scheduler::instance().set_seed(seed);
    const Copy<int32_t> sevens = copy_of(std::vector<int32_t>(512, 7)),
                        back = copy_of(std::vector<int32_t>(1024));
    {
      const Buffer memory(device, ledger, use, nccl->memory_source());
      copy_bytes(stream, memory.data(), sevens.tensor.data, sevens.tensor.bytes());
      copy_bytes(stream, back.tensor.data, memory.data(), back.tensor.bytes());
    }
    const std::vector<int32_t> found = back.back(stream);
    EXPECT_EQ(found.front(), 7) << "seed " << seed;
    EXPECT_EQ(found.back(), 0) << "seed " << seed;
  }
}

// The error of a rank that waits in vain names the call, the group and the rank that did not come.
TEST_F(NcclRanks, ALostRankEndsTheWaitOfTheOthers) {
  const Copy<float> own = copy_of(samples<float>(rank, 100)),
                    all = copy_of(std::vector<float>(static_cast<size_t>(100 * size)));
  const auto expect_loss = [&](FunctionRef<void()> call, const char* name) {
    test_world().set_deadline(1);
    const std::string what = what_of(call, ExitCode::kCommunication);
    EXPECT_HAS(what, fmt::format("rank {} ", size - 1));
    EXPECT_HAS(what, name);
  };
  stream.synchronize();
  if (rank != size - 1) {
    // Once while NCCL's thread waits for the ranks, or the GPU does.
    expect_loss(
        [&] {
          nccl->all_gather(stream, own.tensor, all.tensor).wait();
          stream.synchronize();
        },
        "ather");
    nccl.reset();  // waits once more, and gives up
    test_world().set_deadline(60);
  }
  mpi.barrier();
}

// The last rank splits when the others have given up. NCCL's threads then end the split, and write what it
// made.
TEST_F(NcclRanks, ASplitThatIsGivenUpEndsAllTheSame) {
  const auto world = std::make_shared<NcclWorld>();
  NcclGroup whole(world, mpi.split(0, rank, "whole"), index());
  whole.initialize(/*deterministic=*/false);
  auto part = std::make_unique<NcclGroup>(world, mpi.split(0, rank, "part"), index());
  if (rank == size - 1) {
    mpi.barrier();
    part->initialize_part(whole, 0, rank);
    EXPECT_NE(part->comm(), nullptr);
    mpi.barrier();
    return;
  }
  test_world().set_deadline(1);
  expect_error([&] { part->initialize_part(whole, 0, rank); }, ExitCode::kCommunication,
               "ncclCommSplit on whole");
  part.reset();
  test_world().set_deadline(60);
  mpi.barrier();
  mpi.barrier();
}

// While the GPU waits for a rank that does not come.
TEST_F(NcclRanks, ARankThatIsLostLaterEndsTheWaitForTheGpu) {
  const Copy<float> own = copy_of(samples<float>(rank, 100)),
                    all = copy_of(std::vector<float>(static_cast<size_t>(100 * size)));
  nccl->all_gather(stream, own.tensor, all.tensor).wait();
  stream.synchronize();
  if (rank != size - 1) {
    test_world().set_deadline(1);
    nccl->all_gather(stream, own.tensor, all.tensor).wait();
    const std::string what = what_of([&] { stream.synchronize(); }, ExitCode::kCommunication);
    EXPECT_HAS(what, "all_gather on world");
    EXPECT_HAS(what, fmt::format("rank {} ", size - 1));
    nccl.reset();
    test_world().set_deadline(60);
  }
  mpi.barrier();
}

}  // namespace ripstop
