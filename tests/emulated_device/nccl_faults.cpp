// A program that misuses NCCL in the way that its first argument names, for nccl_faults_test.sh.
//   nccl_faults MODE
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "parallel/communicator.h"
#include "tests/emulated_device/nccl_group_of_ranks.h"

namespace ripstop {
namespace {

struct Fault {
  MpiWorld& world;
  Communicator& mpi = world.communicator();
  int rank = static_cast<int>(mpi.rank()), size = static_cast<int>(mpi.size());
  ncclComm_t comm = make_comm(mpi);
  ncclConfig_t config = not_blocking();
  cudaStream_t stream = nullptr;
  std::byte* memory = nullptr;
  static constexpr size_t kBytes = 1 << 20;

  explicit Fault(MpiWorld& in) : world(in) {
    static_cast<void>(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    static_cast<void>(ncclMemAlloc(reinterpret_cast<void**>(&memory), kBytes));
    static_cast<void>(cudaMemset(memory, 0, kBytes));
    static_cast<void>(cudaDeviceSynchronize());
  }
  void gather(size_t count, ncclDataType_t type = ncclUint8) {
    static_cast<void>(ncclAllGather(memory, memory + kBytes / 2, count, type, comm, stream));
    static_cast<void>(poll(comm));
  }
  void reduce(ncclRedOp_t reduction = ncclSum) {
    static_cast<void>(ncclAllReduce(memory, memory, 256, ncclFloat32, reduction, comm, stream));
    static_cast<void>(poll(comm));
  }
  void broadcast(int root) {
    static_cast<void>(ncclBroadcast(memory, memory, 256, ncclFloat32, root, comm, stream));
    static_cast<void>(poll(comm));
  }
  void exchange(size_t sends, size_t receives) {
    const int to = (rank + 1) % size, from = (rank - 1 + size) % size;
    static_cast<void>(ncclGroupStart());
    static_cast<void>(ncclSend(memory, sends, ncclUint8, to, comm, stream));
    static_cast<void>(ncclRecv(memory + kBytes / 2, receives, ncclUint8, from, comm, stream));
    static_cast<void>(ncclGroupEnd());
    static_cast<void>(poll(comm));
  }
  void end() {
    static_cast<void>(cudaDeviceSynchronize());
    static_cast<void>(ncclCommDestroy(comm));
    mpi.barrier();
  }
};

// Rank 0 is the one that is wrong; what is the same on all ranks is wrong alone.
const std::map<std::string, std::function<void(Fault&)>>& modes() {
  static const std::map<std::string, std::function<void(Fault&)>> all{
      {"nothing", [](Fault& f) { f.gather(100), f.reduce(), f.broadcast(1), f.exchange(64, 64); }},
      {"count", [](Fault& f) { f.gather(f.rank == 0 ? 128 : 256); }},
      {"type", [](Fault& f) { f.gather(64, f.rank == 0 ? ncclFloat32 : ncclInt32); }},
      {"root", [](Fault& f) { f.broadcast(f.rank == 0 ? 0 : 1); }},
      {"reduction", [](Fault& f) { f.reduce(f.rank == 0 ? ncclSum : ncclMax); }},
      {"order",
       [](Fault& f) {
         if (f.rank == 0) f.gather(100);
         f.reduce();
         if (f.rank != 0) f.gather(100);
       }},
      {"exchange", [](Fault& f) { f.exchange(f.rank == 0 ? 32 : 64, 64); }},
      {"host_memory",
       [](Fault& f) {
         float own = 0;
         static_cast<void>(ncclAllReduce(&own, f.memory, 1, ncclFloat32, ncclSum, f.comm, f.stream));
       }},
      {"overlap",
       [](Fault& f) {
         static_cast<void>(
             ncclAllReduce(f.memory, f.memory + 16, 256, ncclFloat32, ncclSum, f.comm, f.stream));
       }},
      {"free",
       [](Fault& f) {
         f.gather(100);
         static_cast<void>(ncclMemFree(f.memory));
       }},
      {"registered",
       [](Fault& f) {
         void* handle = nullptr;
         static_cast<void>(ncclCommRegister(f.comm, f.memory, Fault::kBytes, &handle));
         static_cast<void>(ncclMemFree(f.memory));
       }},
      {"deregister",
       [](Fault& f) {
         void* handle = nullptr;
         static_cast<void>(ncclCommRegister(f.comm, f.memory, Fault::kBytes, &handle));
         f.gather(100);
         static_cast<void>(ncclCommDeregister(f.comm, handle));
       }},
      {"window_size",
       [](Fault& f) {
         ncclWindow_t window = nullptr;
         static_cast<void>(ncclCommWindowRegister(f.comm, f.memory, f.rank == 0 ? 4096 : 8192, &window,
                                                  NCCL_WIN_COLL_SYMMETRIC));
         static_cast<void>(poll(f.comm));
       }},
      {"window_offset",
       [](Fault& f) {
         ncclWindow_t window = nullptr;
         static_cast<void>(
             ncclCommWindowRegister(f.comm, f.memory, Fault::kBytes, &window, NCCL_WIN_COLL_SYMMETRIC));
         static_cast<void>(poll(f.comm));
         static_cast<void>(ncclAllGather(f.memory, f.memory + 65536 + (f.rank == 0 ? 256 : 0), 100, ncclUint8,
                                         f.comm, f.stream));
         static_cast<void>(poll(f.comm));
       }},
      {"register_under_way",
       [](Fault& f) {
         ncclWindow_t window = nullptr;
         void* handle = nullptr;
         if (f.rank != 0) f.mpi.barrier();
         static_cast<void>(
             ncclCommWindowRegister(f.comm, f.memory, Fault::kBytes, &window, NCCL_WIN_COLL_SYMMETRIC));
         static_cast<void>(ncclCommRegister(f.comm, f.memory, Fault::kBytes, &handle));
         if (f.rank == 0) f.mpi.barrier();
       }},
      {"destroyed",
       [](Fault& f) {
         static_cast<void>(ncclCommDestroy(f.comm));
         f.reduce();
       }},
      // NCCL before 2.26: a call on another communicator while the lists of a first send are still in use.
      {"lists",
       [](Fault& f) {
         ncclComm_t other = nullptr;
         static_cast<void>(ncclCommSplit(f.comm, 0, f.rank, &other, &f.config));
         static_cast<void>(poll(f.comm));
         const int peer = 1 - f.rank;
         static_cast<void>(ncclGroupStart());
         static_cast<void>(ncclSend(f.memory, 8, ncclUint8, peer, f.comm, f.stream));
         static_cast<void>(ncclRecv(f.memory + 8, 8, ncclUint8, peer, f.comm, f.stream));
         static_cast<void>(ncclGroupEnd());
         for (ncclResult_t state = ncclInProgress; state == ncclInProgress;)
           static_cast<void>(ncclCommGetAsyncError(f.comm, &state));
         static_cast<void>(ncclAllReduce(f.memory, f.memory, 8, ncclFloat32, ncclSum, other, f.stream));
         static_cast<void>(poll(other));
       }},
      // Two groups whose collectives begin on each rank in an order of its own.
      {"begin_order",
       [](Fault& f) {
         f.world.set_deadline(3);
         const std::unique_ptr<Communicator> first =
             make_nccl_communicator(f.mpi.split(0, f.rank, "first"), Device::cuda(f.rank));
         const std::unique_ptr<Communicator> second = first->split(0, f.rank, "second");
         const Stream one(Device::cuda(f.rank)), two(Device::cuda(f.rank));
         const Tensor a{f.memory, DType::kFloat32, {1024}, Device::cuda(f.rank)};
         const Tensor b{f.memory + 65536, DType::kFloat32, {1024}, Device::cuda(f.rank)};
         for (int k = 0; k < 20; ++k) {
           first->all_reduce(one, a, {});
           second->all_reduce(two, b, {});
         }
         one.synchronize();
         two.synchronize();
       }},
  };
  return all;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using namespace ripstop;
  if (argc != 2 || modes().count(argv[1]) == 0) return 64;
  try {
    MpiWorld world({.deadline_seconds = 30});
    const ExitCode code = world.run([&] {
      Fault fault(world);
      modes().at(argv[1])(fault);
      fault.end();
      return ExitCode::kOk;
    });
    return static_cast<int>(code);
  } catch (const Error& error) {
    std::fprintf(stderr, "FATAL code=%d %s\n", static_cast<int>(error.code()), error.what());
    std::this_thread::sleep_for(std::chrono::duration<double>(MpiWorld::kSecondsToEnd));
    _exit(static_cast<int>(error.code()));
  }
}
