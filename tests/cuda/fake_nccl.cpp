// A fake of NCCL, as far as ripstop calls it. It moves nothing and records everything (recorder.h). Linked
// before the real library, so that parallel/nccl_*.cpp run unchanged. tests/emulated_device has one that
// computes; CALLS.md there says what the real one does.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <functional>
#include <set>
#include <utility>

#include "tests/cuda/fake_cuda.h"
#include "tests/cuda/recorder.h"

using ripstop::recording::bytes_of_block;
using ripstop::recording::number_of;
using ripstop::recording::Recorder;
using ripstop::recording::span;
using ripstop::recording::Span;

// Behaves as NCCL without `blocking`: a call may return ncclSuccess while a thread of NCCL still works for
// it, and what that thread makes is written when ncclCommGetAsyncError first reports success. Until then the
// communicator takes no other call.
struct ncclComm {
  int ranks = 1;
  int in_progress = 0;  // how many more queries it answers with ncclInProgress
  std::function<void()> late;

  void work(std::function<void()> then = nullptr) {
    in_progress = 2;
    late = std::move(then);
  }
};

namespace {

Recorder& recorder() {
  return Recorder::instance();
}

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

int group_depth = 0, groups = 0;
ncclResult_t group_error = ncclSuccess;
std::set<ncclComm_t> in_group;

// Refuses a call before the previous one is done.
ncclResult_t ready(ncclComm_t comm, const char* call) {
  if (comm != nullptr && comm->in_progress == 0) return ncclSuccess;
  recorder().refused.push_back(call);
  if (group_depth > 0) group_error = ncclInvalidArgument;
  return ncclInvalidArgument;
}

ncclResult_t given(ncclComm_t comm, const char* name, cudaStream_t stream, const Span& read,
                   const Span& write) {
  if (const ncclResult_t result = ready(comm, name); result != ncclSuccess) return result;
  recorder().operation(name, number_of(stream), {read}, {write}, comm);
  if (group_depth > 0) {
    in_group.insert(comm);
    return ncclSuccess;
  }
  comm->work();
  return ncclInProgress;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId*) {
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t) {
  return "an error of the fake";
}
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int, ncclConfig_t* config) {
  *comm = new ncclComm{ranks, 3, nullptr};
  return config->blocking == 0 ? ncclInProgress : ncclInvalidUsage;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int, ncclComm_t* part, ncclConfig_t*) {
  if (const ncclResult_t result = ready(comm, "ncclCommSplit"); result != ncclSuccess) return result;
  *part = nullptr;
  comm->work([=] { *part = color == NCCL_SPLIT_NOCOLOR ? nullptr : new ncclComm{2, 0, nullptr}; });
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm == nullptr) return ncclInvalidArgument;
  *result = comm->in_progress > 0 ? ncclInProgress : ncclSuccess;
  if (comm->in_progress > 0) --comm->in_progress;
  if (*result == ncclSuccess)
    if (const std::function<void()> late = std::exchange(comm->late, nullptr)) late();
  return ncclSuccess;
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (const ncclResult_t result = ready(comm, "ncclCommCount"); result != ncclSuccess) return result;
  *count = comm->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (const ncclResult_t result = ready(comm, "ncclCommFinalize"); result != ncclSuccess) return result;
  comm->work();
  return ncclInProgress;
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (const ncclResult_t result = ready(comm, "ncclCommDestroy"); result != ncclSuccess) return result;
  delete comm;
  return ncclSuccess;
}
// Unlike cudaFree, ncclMemFree does not wait for work that uses the memory. So it is recorded as a write by
// the host, which races with such work.
ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (!recorder().nccl_gives_memory) return ncclUnhandledCudaError;
  return cudaMalloc(data, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* data) {
  recorder().operation("ncclMemFree", 0, {}, {span(data, static_cast<size_t>(bytes_of_block(data)))});
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t bytes, void** handle) {
  // The real one changes a list without a lock, beside the thread of a registration under way.
  if (const ncclResult_t result = ready(comm, "ncclCommRegister"); result != ncclSuccess) return result;
  recorder().registered.push_back({comm, span(data, bytes), /*window=*/false});
  *handle = data;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  recorder().host_waits_for_all();
  std::erase_if(recorder().registered,
                [&](const Recorder::Registered& r) { return r.comm == comm && r.memory.begin == handle; });
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window, int) {
  if (const ncclResult_t result = ready(comm, "ncclCommWindowRegister"); result != ncclSuccess) return result;
  if (recorder().has_windows)
    comm->work([=] {
      recorder().registered.push_back({comm, span(data, bytes), /*window=*/true});
      *window = reinterpret_cast<ncclWindow_t>(data);
    });
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return ncclCommDeregister(comm, window);
}
ncclResult_t ncclGroupStart() {
  if (group_depth++ == 0) recorder().group = ++groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  if (--group_depth > 0) return ncclSuccess;
  recorder().group = 0;
  const std::set<ncclComm_t> given = std::exchange(in_group, {});
  for (ncclComm_t comm : given) comm->work();
  if (group_error != ncclSuccess) return std::exchange(group_error, ncclSuccess);
  return given.empty() ? ncclSuccess : ncclInProgress;
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return given(comm, "all_gather", stream, span(from, bytes),
               span(to, bytes * static_cast<size_t>(comm->ranks)));
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  const size_t bytes = count * bytes_of(type);
  return given(comm, "reduce_scatter", stream, span(from, bytes * static_cast<size_t>(comm->ranks)),
               span(to, bytes));
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return given(comm, "all_reduce", stream, span(from, count * bytes_of(type)),
               span(to, count * bytes_of(type)));
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int,
                           ncclComm_t comm, cudaStream_t stream) {
  return given(comm, "broadcast", stream, span(from, count * bytes_of(type)),
               span(to, count * bytes_of(type)));
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int, ncclComm_t comm,
                      cudaStream_t stream) {
  return given(comm, "send", stream, span(from, count * bytes_of(type)), {});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int, ncclComm_t comm,
                      cudaStream_t stream) {
  return given(comm, "receive", stream, {}, span(to, count * bytes_of(type)));
}

}  // extern "C"
