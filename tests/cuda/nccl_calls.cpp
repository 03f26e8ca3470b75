// The host's time for a call of NCCL: 1,000 small messages of a rank to itself, or as many as the argument
// says, by groups whose calls return at once and by groups whose calls block (ncclConfig_t::blocking). Prints
// one JSON object with microseconds a call; without a GPU a line with the reason, and ends with 77. A
// collective of one rank would tell nothing: NCCL then gives a copy to the stream in the call.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>

#include "model/device/cuda_device.h"
#include "model/device/cuda_machine.h"

namespace ripstop {
namespace {

constexpr size_t kBytes = 1024;

// The same as NcclGroup::check, without a deadline: nobody else is in the group.
void wait_for(ncclComm_t comm, ncclResult_t result, const char* call) {
  while (result == ncclInProgress)
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &result); asked != ncclSuccess) result = asked;
  if (result != ncclSuccess)
    throw Error(ExitCode::kCommunication, fmt::format("{}: {}", call, ncclGetErrorString(result)));
}

ncclResult_t send_to_itself(ncclComm_t comm, const void* from, void* to, cudaStream_t stream) {
  wait_for(comm, ncclGroupStart(), "ncclGroupStart");
  wait_for(comm, ncclSend(from, kBytes, ncclUint8, 0, comm, stream), "ncclSend");
  wait_for(comm, ncclRecv(to, kBytes, ncclUint8, 0, comm, stream), "ncclRecv");
  return ncclGroupEnd();
}

struct Measured {
  double of_call_us = 0;   ///< the host's time in a call, until it may make the next
  double in_all_us = 0;    ///< until the GPU is done, over the calls
  int returned_early = 0;  ///< calls that returned before NCCL was done with them
};

Measured time_calls(int blocking, int calls) {
  using Clock = std::chrono::steady_clock;
  const auto since = [calls](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
  };
  ncclUniqueId id;
  wait_for(nullptr, ncclGetUniqueId(&id), "ncclGetUniqueId");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking;
  ncclComm_t comm = nullptr;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm, 1, id, 0, &config);
  wait_for(comm, begun, "ncclCommInitRankConfig");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  void *from = nullptr, *to = nullptr;
  for (void** memory : {&from, &to}) check_cuda(cudaMalloc(memory, kBytes), "cudaMalloc");
  Measured result;
  for (const int round : {0, 1}) {  // the first one loads kernels
    static_cast<void>(round);
    const Clock::time_point begin = Clock::now();
    result.returned_early = 0;
    for (int i = 0; i < calls; ++i) {
      const ncclResult_t returned = send_to_itself(comm, from, to, stream);
      result.returned_early += returned == ncclInProgress ? 1 : 0;
      wait_for(comm, returned, "ncclGroupEnd");
    }
    result.of_call_us = since(begin);
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    result.in_all_us = since(begin);
  }
  wait_for(comm, ncclCommFinalize(comm), "ncclCommFinalize");
  static_cast<void>(ncclCommDestroy(comm));
  for (void* memory : {from, to}) check_cuda(cudaFree(memory), "cudaFree");
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return result;
}

}  // namespace
}  // namespace ripstop

int main(int argc, char** argv) {
  using namespace ripstop;
  if (cuda_device_count() == 0) {
    fmt::print("no GPU: {}\n", look_at_cuda().problem);
    return 77;
  }
  try {
    const int calls = argc > 1 ? std::atoi(argv[1]) : 1000;
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    const Measured returns = time_calls(0, calls), blocks = time_calls(1, calls);
    fmt::print("{{\"calls\": {}, \"non_blocking_us\": {:.2f}, \"non_blocking_done_us\": {:.2f}, ", calls,
               returns.of_call_us, returns.in_all_us);
    fmt::print("\"blocking_us\": {:.2f}, \"blocking_done_us\": {:.2f}, \"returned_early\": {}}}\n",
               blocks.of_call_us, blocks.in_all_us, returns.returned_early);
    constexpr int kAlwaysInAThread = 22602;
    int version = 0;
    static_cast<void>(ncclGetVersion(&version));
    if (returns.returned_early == 0 && version >= kAlwaysInAThread)
      throw Error(ExitCode::kCommunication, "no call returned before it was done: both times are of one way");
  } catch (const Error& error) {
    fmt::print(stderr, "FATAL {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
