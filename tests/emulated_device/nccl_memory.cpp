// Memory of the emulated NCCL: allocation, registration, symmetric windows (NCCL's allocator.cc, register.cc
// and dev_runtime.cc).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "tests/emulated_device/device_memory.h"
#include "tests/emulated_device/nccl_state.h"
#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

constexpr int64_t kPageBytes = int64_t{2} << 20;  // what cuMemCreate rounds up to
constexpr intptr_t kWindowAlignment = NCCL_WIN_REQUIRED_ALIGNMENT;

struct Blocks {
  std::mutex mutex;
  std::map<const std::byte*, int64_t> all;  // of ncclMemAlloc: begin and bytes
};
Blocks& blocks() {
  static auto* const kept = new Blocks;
  return *kept;
}

struct Block {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
};

// The block of ncclMemAlloc that has all of [data, data + bytes), or none.
Block block_of(const void* data, int64_t bytes) {
  const std::lock_guard lock(blocks().mutex);
  const auto* at = static_cast<const std::byte*>(data);
  auto next = blocks().all.upper_bound(at);
  if (next == blocks().all.begin()) return {};
  const auto& [begin, size] = *std::prev(next);
  return at + bytes <= begin + size ? Block{begin, size} : Block{};
}

bool overlap(const void* a, int64_t a_bytes, const std::byte* b, int64_t b_bytes) {
  const auto* begin = static_cast<const std::byte*>(a);
  return a != nullptr && begin < b + b_bytes && b < begin + a_bytes;
}

// The first call given to a stream and not done that uses the memory.
std::string open_call_on(CommunicatorCore& core, const std::byte* begin, int64_t bytes) {
  const std::lock_guard lock(core.mutex);
  for (const Task& task : core.open) {
    const int64_t piece = task.call.bytes();
    const int64_t all = piece * core.exchange->ranks();
    const bool scatters = task.call.kind == Call::Kind::kReduceScatter;
    const bool gathers = task.call.kind == Call::Kind::kAllGather;
    if (overlap(task.send, scatters ? all : piece, begin, bytes) ||
        overlap(task.receive, gathers ? all : piece, begin, bytes))
      return to_text(task.call);
  }
  return "";
}

RegisteredMemory* register_here(ncclComm_t comm, const void* data, int64_t bytes) {
  for (const auto& known : comm->registered)
    if (known->covers(data, bytes)) {
      ++known->references;
      return known.get();
    }
  comm->registered.push_back(std::make_unique<RegisteredMemory>(
      RegisteredMemory{static_cast<const std::byte*>(data), bytes, false, false, 1}));
  return comm->registered.back().get();
}

ncclResult_t deregister(ncclComm_t comm, RegisteredMemory* memory, const char* call) {
  const auto found = std::find_if(comm->registered.begin(), comm->registered.end(),
                                  [&](const auto& known) { return known.get() == memory; });
  if (found == comm->registered.end())
    return warn(behaviour().one_job_a_group ? ncclInvalidUsage : ncclInvalidArgument,
                fmt::format("{}: this communicator has no such registration", call));
  if (const std::string open = open_call_on(*comm->core, memory->begin, memory->bytes); !open.empty())
    refuse(call, fmt::format("{} on {} still uses this memory", open, comm->core->name));
  if (--memory->references == 0) comm->registered.erase(found);
  return ncclSuccess;
}

// The message of the ranks of a window to each other.
struct WindowOffer {
  int64_t bytes = 0, offset = 0, is_window = 1;
};

// The round of messages of a symmetric window. Ranks that disagree would map memory at wrong places.
ncclResult_t agree_on_window(ncclComm_t comm, const WindowTask& task, int64_t offset) {
  const WindowOffer own{task.bytes, offset};
  SharedExchange::Record record{};
  std::memcpy(record.data(), &own, sizeof own);
  const auto all = comm->exchange().all_gather(record, [&] { return comm->core->abort.load(); });
  if (all.empty()) return ncclInternalError;
  for (size_t r = 0; r < all.size(); ++r) {
    WindowOffer other;
    std::memcpy(&other, all[r].data(), sizeof other);
    if (other.bytes != own.bytes || other.offset != own.offset || other.is_window != 1)
      refuse("ncclCommWindowRegister",
             fmt::format("{} bytes at byte {} of a block on rank {}, {} at byte {} on rank {} of {}",
                         own.bytes, own.offset, comm->rank, other.bytes, other.offset, r, comm->core->name));
  }
  return ncclSuccess;
}

ncclResult_t make_window(ncclComm_t comm, const WindowTask& task) {
  const auto write = [&](ncclWindow_t window) { std::atomic_ref<ncclWindow_t>(*task.window).store(window); };
  RegisteredMemory* memory =
      task.memory != nullptr ? task.memory : register_here(comm, task.data, task.bytes);
  if (behaviour().symmetric) {
    const Block block = block_of(task.data, task.bytes);
    const int64_t offset = static_cast<const std::byte*>(task.data) - block.begin;
    const auto fail = [&](ncclResult_t result, const char* why) {
      static_cast<void>(deregister(comm, memory, "ncclCommWindowRegister"));
      if (behaviour().late_windows) write(nullptr);
      return warn(result, why);
    };
    if (block.begin == nullptr)
      return fail(ncclUnhandledCudaError, "cuMemRetainAllocationHandle: this memory is not of ncclMemAlloc");
    if (behaviour().multicast_fails)
      return fail(ncclUnhandledCudaError, "cuMulticastCreate: operation not supported");
    if (offset % kWindowAlignment != 0) return fail(ncclInvalidArgument, "the window is not aligned");
    if (const ncclResult_t result = agree_on_window(comm, task, offset); result != ncclSuccess) return result;
    memory->window = true;
    memory->symmetric = (task.flags & NCCL_WIN_COLL_SYMMETRIC) != 0;
  }
  if (draw(2) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1 + draw(20)));
  if (behaviour().late_windows) write(new ncclWindow_vidmem{memory});
  return ncclSuccess;
}

}  // namespace

ncclResult_t register_windows(ncclComm_t comm) {
  for (const WindowTask& task : comm->window_tasks)
    if (const ncclResult_t result = make_window(comm, task); result != ncclSuccess) return result;
  return ncclSuccess;
}

}  // namespace ripstop::emulated

using namespace ripstop::emulated;

namespace {

// 2.27 fills the window at the call and registers in the background; 2.28 does both in the background.
ncclResult_t begin_window(ncclComm_t comm, WindowTask task) {
  if (task.data == nullptr || task.bytes == 0) return ncclSuccess;
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) return result;
  if (!on_device(task.data, task.bytes))
    refuse("ncclCommWindowRegister", "the memory is not a block of the device");
  if (!behaviour().late_windows) {
    // A block that is not of whole pages gets no window, and the call succeeds.
    if (block_of(task.data, task.bytes).begin == nullptr) return ncclSuccess;
    task.memory = register_here(comm, task.data, task.bytes);
    *task.window = new ncclWindow_vidmem{task.memory};
    if (!behaviour().symmetric) return ncclSuccess;
  }
  add_window(comm, task);
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  const auto whole = (static_cast<int64_t>(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
  int device = 0;
  static_cast<void>(cudaGetDevice(&device));
  *data = allocate_device(device, whole);
  if (*data == nullptr)
    return warn(ncclUnhandledCudaError, fmt::format("cuMemCreate of {} bytes: out of memory", whole));
  const std::lock_guard lock(blocks().mutex);
  blocks().all[static_cast<const std::byte*>(*data)] = whole;
  return ncclSuccess;
}

// Does not wait for the device, as cudaFree does: work that is still to run finds no memory.
ncclResult_t ncclMemFree(void* data) {
  const Block block = block_of(data, 1);
  if (block.begin != data)
    return warn(ncclUnhandledCudaError, "ncclMemFree: this is no memory of ncclMemAlloc");
  for (ncclComm_t comm : living_communicators()) {
    for (const auto& known : comm->registered)
      if (overlap(known->begin, known->bytes, block.begin, block.bytes))
        refuse("ncclMemFree", fmt::format("the memory is still registered with {}", comm->core->name));
    if (comm->core->exchange == nullptr) continue;
    if (const std::string open = open_call_on(*comm->core, block.begin, block.bytes); !open.empty())
      refuse("ncclMemFree", fmt::format("{} on {} still uses the memory", open, comm->core->name));
  }
  {
    const std::lock_guard lock(blocks().mutex);
    blocks().all.erase(block.begin);
  }
  return free_device(data) ? ncclSuccess : ncclUnhandledCudaError;
}

// Versions and machines differ in what they do with it; the handle is null where they do nothing.
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t bytes, void** handle) {
  if (const ncclResult_t result = check_communicator(comm, "ncclCommRegister"); result != ncclSuccess)
    return result;
  if (data == nullptr || handle == nullptr || bytes == 0)
    return warn(ncclInvalidArgument, "ncclCommRegister: a null argument or no bytes");
  if (!on_device(data, static_cast<int64_t>(bytes)))
    refuse("ncclCommRegister", "the memory is not a block of the device");
  // The list of registrations has no lock, and the thread of a registration under way changes it.
  if (comm->async.load() == ncclInProgress)
    refuse("ncclCommRegister", fmt::format("{} is not done with its previous call", comm->core->name));
  *handle = register_here(comm, data, static_cast<int64_t>(bytes));
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  if (const ncclResult_t result = check_communicator(comm, "ncclCommDeregister"); result != ncclSuccess)
    return result;
  if (handle == nullptr) return behaviour().one_job_a_group ? ncclSuccess : ncclInvalidArgument;
  return deregister(comm, static_cast<RegisteredMemory*>(handle), "ncclCommDeregister");
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  if (!behaviour().has_windows) refuse("ncclCommWindowRegister", "this version of NCCL does not have it");
  static_cast<void>(check_communicator(comm, "ncclCommWindowRegister"));
  // 2.28 leaves it as it is until the background has the window.
  if (!behaviour().late_windows) *window = nullptr;
  group_start();
  const ncclResult_t result =
      group_error(begin_window(comm, {data, static_cast<int64_t>(bytes), flags, window}));
  const ncclResult_t ended = group_end("ncclCommWindowRegister");
  if (ended != ncclSuccess && ended != ncclInProgress) return ended;
  return behaviour().late_windows ? result : ended;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  if (!behaviour().has_windows) refuse("ncclCommWindowDeregister", "this version of NCCL does not have it");
  if (window == nullptr) return ncclSuccess;
  static_cast<void>(check_communicator(comm, "ncclCommWindowDeregister"));
  const ncclResult_t result = deregister(comm, window->memory, "ncclCommWindowDeregister");
  if (result == ncclSuccess) delete window;
  return result;
}

}  // extern "C"
