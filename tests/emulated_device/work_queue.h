// The work queues of the emulated GPU: streams, and the order in which their work runs.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

namespace ripstop::emulated {

/// A piece of work at the head of a stream. It is called again and again until it returns true: then it is
/// done and the next work of its stream may begin. It must not block: work that waits for other ranks looks
/// whether they have come and returns false if not. Arguments that the real library reads at the call must be
/// captured by value; memory that the real library reads when the work runs must be read when the work runs.
using Work = std::function<bool()>;

/// The hardware queues of the device, as CUDA_DEVICE_MAX_CONNECTIONS says at the first call: 8 unless it is
/// set, at most 32. Work of streams that share one begins in the order in which it was given.
int hardware_queues();

/// Appends work to `stream` (null: the legacy stream). Returns at once; the work runs later: while the host
/// waits, between its calls, or while it is elsewhere. `name` appears in messages. May be called from any
/// thread.
void submit(cudaStream_t stream, std::string name, Work work);

/// Ends the process with a message and exit code 70, as a stand-in does when the caller does what the real
/// library refuses or leaves undefined and returns no status for.
[[noreturn]] void refuse(const std::string& call, const std::string& why);

/// The number in the environment variable; `otherwise` if it is not set or empty.
int64_t from_environment(const char* name, int64_t otherwise);
/// The rank by the launcher; the emulated NCCL itself learns its rank too late.
int64_t rank_of_process();

/// Whether [data, data + bytes) lies inside one living block of device memory. May be called by work, and
/// from any thread.
bool on_device(const void* data, int64_t bytes);

}  // namespace ripstop::emulated
