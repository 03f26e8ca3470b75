// What a collective costs the host: 1,000 small all-gathers of one rank, by groups whose calls return at once
// and by groups whose calls block (ncclConfig_t::blocking). Prints one JSON object with microseconds a call;
// without a GPU a line with the reason, and ends with 77.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include <chrono>

#include "model/device/cuda_device.h"
#include "model/device/cuda_machine.h"

namespace ripstop {
namespace {

constexpr int kCalls = 1000;
constexpr size_t kBytes = 1024;

// As NcclGroup::check does, without a deadline: nobody else is in the group.
void wait_for(ncclComm_t comm, ncclResult_t result, const char* call) {
  while (result == ncclInProgress)
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm, &result); asked != ncclSuccess) result = asked;
  if (result != ncclSuccess)
    throw Error(ExitCode::kCommunication, fmt::format("{}: {}", call, ncclGetErrorString(result)));
}

struct Microseconds {
  double of_call = 0;  ///< the host's time in a call, until it may make the next
  double in_all = 0;   ///< until the GPU is done, over the calls
};

Microseconds time_calls(int blocking) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kCalls;
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
  Microseconds result;
  for (const int round : {0, 1}) {  // the first one loads kernels
    static_cast<void>(round);
    const Clock::time_point begin = Clock::now();
    for (int i = 0; i < kCalls; ++i)
      wait_for(comm, ncclAllGather(from, to, kBytes, ncclUint8, comm, stream), "ncclAllGather");
    result.of_call = since(begin);
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    result.in_all = since(begin);
  }
  wait_for(comm, ncclCommFinalize(comm), "ncclCommFinalize");
  static_cast<void>(ncclCommDestroy(comm));
  for (void* memory : {from, to}) check_cuda(cudaFree(memory), "cudaFree");
  check_cuda(cudaStreamDestroy(stream), "cudaStreamDestroy");
  return result;
}

}  // namespace
}  // namespace ripstop

int main() {
  using namespace ripstop;
  if (cuda_device_count() == 0) {
    fmt::print("no GPU: {}\n", look_at_cuda().problem);
    return 77;
  }
  try {
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    const Microseconds returns = time_calls(0), blocks = time_calls(1);
    fmt::print("{{\"calls\": {}, \"non_blocking_us\": {:.2f}, \"non_blocking_done_us\": {:.2f}, ", kCalls,
               returns.of_call, returns.in_all);
    fmt::print("\"blocking_us\": {:.2f}, \"blocking_done_us\": {:.2f}}}\n", blocks.of_call, blocks.in_all);
  } catch (const Error& error) {
    fmt::print(stderr, "FATAL {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
