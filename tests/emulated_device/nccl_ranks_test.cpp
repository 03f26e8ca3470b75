// The communicator over NCCL (parallel/nccl_*.cpp, unchanged) on the emulated GPU and the emulated NCCL,
// beside the one over MPI. The environment chooses NCCL's version and the seed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "model/device/cuda_device.h"
#include "parallel/group_memory.h"
#include "parallel/mesh_axes.h"
#include "parallel/nccl_group.h"
#include "tests/emulated_device/scheduler.h"
#include "tests/parallel/rank_tests.h"

namespace ripstop {
namespace {

// None, one, odd, about a piece of a message, and more than the ranks' shared memory holds at once.
const int64_t kCounts[] = {0, 1, 3, 1777, 90000};

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

class NcclRanks : public testing::Test {
 protected:
  // Ranks of one machine have a GPU each.
  static int index() { return static_cast<int>(test_world().communicator().rank()); }
  static std::unique_ptr<Communicator> make() {
    Communicator& world = test_world().communicator();
    return make_nccl_communicator(world.split(0, world.rank(), "world"), Device::cuda(index()));
  }

  Communicator& mpi = test_world().communicator();
  const int64_t rank = mpi.rank(), size = mpi.size();
  const Device device = Device::cuda(index());
  const Stream host{Device::cpu()};
  MemoryLedger ledger;
  std::unique_ptr<Communicator> nccl = make();
  const Stream stream{device};
  std::vector<float> mpi_scratch;

  // A vector's copy on the GPU.
  template <class T>
  struct Copy {
    Buffer memory;
    Tensor tensor;
    std::vector<T> back(const Stream& stream) const {
      std::vector<T> x(static_cast<size_t>(tensor.count()));
      if (!x.empty()) copy_bytes(stream, x.data(), tensor.data, tensor.bytes());
      stream.synchronize();
      return x;
    }
  };
  template <class T>
  Copy<T> copy_of(const std::vector<T>& x, const Stream& on) {
    const auto bytes = static_cast<int64_t>(x.size() * sizeof(T));
    Copy<T> copy{Buffer(device, ledger, MemoryCategory::kWorkspace, std::max<int64_t>(bytes, 4)), {}};
    copy.tensor = tensor_in(copy.memory, 0, DTypeOf<T>::value, {static_cast<int64_t>(x.size())});
    if (bytes > 0) copy_bytes(on, copy.tensor.data, x.data(), bytes);
    return copy;
  }
  template <class T>
  Copy<T> copy_of(const std::vector<T>& x) {
    return copy_of(x, stream);
  }
  Copy<float> scratch(int64_t bytes) {
    return copy_of(std::vector<float>(static_cast<size_t>(bytes / 4 + 1)));
  }

  template <class T>
  void check_gather(Communicator& group, int64_t n) {
    std::vector<T> own = samples<T>(group.rank(), n), expected;
    for (int64_t r = 0; r < group.size(); ++r)
      for (const T& x : samples<T>(r, n)) expected.push_back(x);
    const Copy<T> from = copy_of(own), to = copy_of(std::vector<T>(expected.size()));
    const int64_t before = group.bytes_sent();
    group.all_gather(stream, from.tensor, to.tensor).wait();
    EXPECT_TRUE(same(to.back(stream), expected)) << n << " on " << group.name();
    EXPECT_EQ(group.bytes_sent() - before, n * static_cast<int64_t>(sizeof(T)) * (group.size() - 1));
  }
  template <class T>
  void check_reduce_scatter(int64_t n, DType travel, Accumulate accumulate);
  template <class T>
  void check_all_reduce(int64_t n, Reduce reduce, double tolerance, DType travel = DTypeOf<T>::value);
  void send_along(int64_t step, bool behind_event);
};

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
void NcclRanks::check_all_reduce(int64_t n, Reduce reduce, double tolerance, DType travel) {
  std::vector<T> x = samples<T>(rank, n);
  const Copy<T> copy = copy_of(x);
  const auto bytes = [&](const Communicator& group) {
    return group.all_reduce_scratch_bytes(n, DTypeOf<T>::value, travel);
  };
  const Copy<float> room = scratch(bytes(*nccl));
  nccl->start_all_reduce(stream, copy.tensor, reduce, travel, room.tensor, nullptr).wait();
  const std::vector<T> got = copy.back(stream);
  mpi.start_all_reduce(host, tensor_of(x), reduce, travel, scratch_of(mpi_scratch, bytes(mpi)), nullptr)
      .wait();
  EXPECT_LE(distance(got, x), reduce == Reduce::kSum ? tolerance : 0)
      << n << " " << to_string(DTypeOf<T>::value);
  // All ranks have the same bits.
  std::vector<T> first = got;
  mpi.broadcast(host, tensor_of(first), 0);
  EXPECT_TRUE(same(got, first));
}

TEST_F(NcclRanks, AllReduceOfEveryType) {
  for (const int64_t n : {int64_t{1}, 2 * size - 1, int64_t{1777}, int64_t{70000}}) {
    // Both back ends add in rank order and round alike.
    if (n >= size) check_all_reduce<float>(n, Reduce::kSum, 0, DType::kBFloat16);
    for (const Reduce reduce : {Reduce::kSum, Reduce::kMax}) {
      check_all_reduce<float>(n, reduce, 1e-4);
      check_all_reduce<double>(n, reduce, 1e-12);
      check_all_reduce<BFloat16>(n, reduce, 0.5 * static_cast<double>(size));
      check_all_reduce<int32_t>(n, reduce, 0);
    }
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

void NcclRanks::send_along(int64_t step, bool behind_event) {
  const Copy<float> zeros = copy_of(std::vector<float>(90000));
  const int64_t to = rank + step, from = rank - step;
  const auto is_there = [&](int64_t r) { return r >= 0 && r < size; };
  std::vector<Copy<float>> sent, received;
  for (const int64_t n : kCounts) {
    sent.push_back(copy_of(samples<float>(rank + n, n)));
    received.push_back(copy_of(samples<float>(rank, n)));
  }
  // A receive that does not wait for this would be overwritten.
  for (const Copy<float>& each : received)
    copy_bytes(stream, each.tensor.data, zeros.tensor.data, each.tensor.bytes());
  Event written(device);
  written.record(stream);
  std::vector<Pending> pending;
  const int64_t before = nccl->bytes_sent();
  int64_t bytes = 0;
  for (size_t k = 0; k < sent.size(); ++k) {
    const Tensor& message = sent[k].tensor;
    if (is_there(from))
      pending.push_back(
          nccl->start_receive(stream, received[k].tensor, from, behind_event ? &written : nullptr));
    if (!is_there(to)) continue;
    nccl->start_send(stream, message, to).wait();
    copy_bytes(stream, message.data, zeros.tensor.data, message.bytes());
    bytes += message.bytes();
  }
  EXPECT_EQ(nccl->bytes_sent() - before, bytes);
  check_gather<float>(*nccl, 1777);
  for (Pending& each : pending) each.wait();
  for (size_t k = 0; is_there(from) && k < received.size(); ++k)
    EXPECT_TRUE(same(received[k].back(stream), samples<float>(from + kCounts[k], kCounts[k]))) << k;
}

// Messages up and down a line of ranks. Each sender overwrites a message as soon as it may. A receive may be
// behind an event instead of the stream, and then begins before the stream's later work.
TEST_F(NcclRanks, MessagesArriveInTheOrderOfTheirSends) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    emulated::Scheduler::instance().set_seed(seed);
    for (const int64_t step : {1, -1}) send_along(step, /*behind_event=*/seed % 2 == 0);
  }
  const Copy<float> one = copy_of(std::vector<float>(1));
  EXPECT_THROW(nccl->start_send(stream, one.tensor, rank).wait(), Error);
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
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kCommunication);
      const std::string lost = fmt::format("rank {} ", size - 1);
      EXPECT_NE(std::string(error.what()).find(lost), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
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

// Each waits for room on the way to the next; a wait in vain names the call.
TEST_F(NcclRanks, RanksThatAllSendFirstStandStill) {
  if (size == 1) return;
  const Copy<float> first = copy_of(std::vector<float>(8)), long_one = copy_of(std::vector<float>(90000));
  const int64_t to = (rank + 1) % size, from = (rank - 1 + size) % size;
  nccl->exchange(stream, first.tensor.row_range(0, 4), to, first.tensor.row_range(4, 4), from);
  stream.synchronize();
  test_world().set_deadline(1);
  try {
    nccl->start_send(stream, long_one.tensor, to).wait();
    nccl->start_receive(stream, long_one.tensor, from, nullptr).wait();
    stream.synchronize();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("send on world"), std::string::npos) << error.what();
  }
  nccl.reset();
  test_world().set_deadline(60);
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
  try {
    part->initialize_part(whole, 0, rank);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ncclCommSplit on whole"), std::string::npos) << error.what();
  }
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
    try {
      stream.synchronize();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("all_gather on world"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(fmt::format("rank {} ", size - 1)), std::string::npos)
          << error.what();
    }
    nccl.reset();
    test_world().set_deadline(60);
  }
  mpi.barrier();
}

}  // namespace
}  // namespace ripstop
