// Results of the emulated NCCL's calls while they work in the background, as each version of the real one
// does (CALLS.md). Calls NCCL itself: parallel/nccl_*.cpp waits wherever the tests here do not.
#include <cstdlib>
#include <vector>

#include "tests/emulated_device/nccl_group_of_ranks.h"
#include "tests/emulated_device/scheduler.h"
#include "tests/expect_has.h"

namespace ripstop {
namespace {

class NcclStates : public testing::Test {
 protected:
  void TearDown() override {
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(poll(comm));
    EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  }

  ncclResult_t state_of(ncclComm_t asked) {
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(asked, &state), ncclSuccess);
    return state;
  }
  static int version() {
    int version = 0;
    static_cast<void>(ncclGetVersion(&version));
    return version;
  }

  Communicator& mpi = test_world().communicator();
  const int rank = static_cast<int>(mpi.rank()), size = static_cast<int>(mpi.size());
  ncclComm_t comm = make_comm(mpi);
  ncclConfig_t config = not_blocking();
};

// Rank 0 splits before the others do, so its split cannot be done.
TEST_F(NcclStates, ASplitReturnsSuccessBeforeItIsDone) {
  auto* const before = reinterpret_cast<ncclComm_t>(16);
  ncclComm_t part = before, other = before;
  if (rank != 0) mpi.barrier();
  ASSERT_EQ(ncclCommSplit(comm, 0, rank, &part, &config), ncclSuccess);
  if (rank == 0) {
    EXPECT_EQ(part, nullptr);
    EXPECT_EQ(state_of(comm), ncclInProgress);
    ncclResult_t state = ncclSuccess;
    EXPECT_EQ(ncclCommGetAsyncError(part, &state), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSplit(comm, 0, rank, &other, &config), ncclInvalidArgument);
    EXPECT_EQ(other, version() < 22602 ? nullptr : before);
    int count = 0;
    EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
    EXPECT_HAS(ncclGetLastError(nullptr), "previous operation");
    mpi.barrier();
  }
  EXPECT_EQ(poll(comm), ncclSuccess);
  ASSERT_NE(part, nullptr);
  EXPECT_EQ(state_of(part), ncclSuccess);
  int count = 0;
  EXPECT_EQ(ncclCommCount(part, &count), ncclSuccess);
  EXPECT_EQ(count, size);
  EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
}

TEST_F(NcclStates, ARankWithoutAColorWorksAsWell) {
  ncclComm_t part = nullptr;
  if (rank != 0) mpi.barrier();
  ASSERT_EQ(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 7, rank, &part, &config), ncclSuccess);
  if (rank == 0) {
    EXPECT_EQ(state_of(comm), ncclInProgress);
    mpi.barrier();
  }
  EXPECT_EQ(poll(comm), ncclSuccess);
  EXPECT_EQ(part == nullptr, rank == 0);
  EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
}

TEST_F(NcclStates, AWindowComesLaterThanTheCallReturns) {
  if (version() < 22703) return;
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
  auto* const before = reinterpret_cast<ncclWindow_t>(16);
  ncclWindow_t window = before;
  if (rank != 0) mpi.barrier();
  const ncclResult_t result = ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
  if (rank == 0) {
    EXPECT_EQ(result, version() >= 22800 ? ncclSuccess : ncclInProgress);
    EXPECT_EQ(window == before, version() >= 22800);
    EXPECT_EQ(state_of(comm), ncclInProgress);
    mpi.barrier();
  }
  EXPECT_EQ(poll(comm), ncclSuccess);
  EXPECT_TRUE(window != nullptr && window != before);
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST_F(NcclStates, MemoryThatIsNotOfNcclGetsNoWindow) {
  if (version() < 22703) return;
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 4096), cudaSuccess);
  ncclWindow_t window = nullptr;
  const ncclResult_t result = ncclCommWindowRegister(comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC);
  EXPECT_EQ(result, ncclSuccess);
  EXPECT_EQ(poll(comm), version() >= 22800 ? ncclUnhandledCudaError : ncclSuccess);
  EXPECT_EQ(window, nullptr);
  if (version() >= 22800) {  // an error stays
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    comm = make_comm(mpi);
  }
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(NcclStates, GroupsNestAndKeepTheirFirstError) {
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllGather(nullptr, nullptr, 1, ncclUint8, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
}

TEST_F(NcclStates, FinalizeIsAskedForAndHappensOnce) {
  const ncclResult_t result = ncclCommFinalize(comm);
  EXPECT_TRUE(result == ncclInProgress || result == ncclSuccess);
  EXPECT_EQ(poll(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
  comm = make_comm(mpi);
}

TEST_F(NcclStates, AConfigIsChecked) {
  ncclComm_t part = nullptr;
  const auto refused = [&](auto change) {
    ncclConfig_t wrong = not_blocking();
    change(wrong);
    return ncclCommSplit(comm, 0, rank, &part, &wrong) == ncclInvalidArgument && part == nullptr;
  };
  EXPECT_TRUE(refused([](ncclConfig_t& c) { c.magic = 0; }));
  EXPECT_TRUE(refused([](ncclConfig_t& c) { c.blocking = 2; }));
  EXPECT_TRUE(refused([](ncclConfig_t& c) { c.maxCTAs = 0; }));
  EXPECT_TRUE(refused([](ncclConfig_t& c) { c.splitShare = 3; }));
  EXPECT_TRUE(refused([](ncclConfig_t& c) { c.cgaClusterSize = -1; }));
  EXPECT_EQ(poll(comm), ncclSuccess);
  // 2.27 has no policy 2; earlier versions do not read that far.
  config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
  const bool known = version() < 22703 || version() >= 22800;
  EXPECT_EQ(ncclCommSplit(comm, 0, rank, &part, &config), known ? ncclSuccess : ncclInvalidArgument);
  EXPECT_EQ(poll(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
}

// Two ranks on one GPU are refused by every rank that sees it.
TEST_F(NcclStates, TwoRanksOnOneGpuAreRefused) {
  static_cast<void>(cudaSetDevice(0));
  ncclComm_t shared = nullptr;
  const ncclUniqueId id = id_of(mpi);
  static_cast<void>(ncclCommInitRankConfig(&shared, size, id, rank, &config));
  EXPECT_EQ(poll(shared), ncclInvalidUsage);
  EXPECT_EQ(ncclCommAbort(shared), ncclSuccess);
  static_cast<void>(cudaSetDevice(rank));
}

// With two ranks the order of a sum does not matter, and without switches it is fixed.
TEST_F(NcclStates, SumsOfNvlinkSwitchesHaveNoFixedOrder) {
  const bool is_fixed = size < 3 || std::getenv("NCCL_NVLS_ENABLE") != nullptr;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  std::vector<float> x(70000), sums[2];
  for (size_t i = 0; i < x.size(); ++i) x[i] = sample(rank, static_cast<int64_t>(i));
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, x.size() * sizeof(float)), cudaSuccess);
  for (uint64_t seed = 0; seed < 2; ++seed) {
    emulated::Scheduler::instance().set_seed(seed + 1);
    ASSERT_EQ(cudaMemcpyAsync(memory, x.data(), x.size() * sizeof(float), cudaMemcpyDefault, stream),
              cudaSuccess);
    static_cast<void>(ncclAllReduce(memory, memory, x.size(), ncclFloat32, ncclSum, comm, stream));
    ASSERT_EQ(poll(comm), ncclSuccess);
    sums[seed].resize(x.size());
    ASSERT_EQ(cudaMemcpyAsync(sums[seed].data(), memory, x.size() * sizeof(float), cudaMemcpyDefault, stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  }
  EXPECT_EQ(sums[0] == sums[1], is_fixed);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

}  // namespace
}  // namespace ripstop
