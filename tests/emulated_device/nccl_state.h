// The state of the emulated NCCL: its version, communicators, and the groups of calls of a thread.
#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/emulated_device/shared_exchange.h"

namespace ripstop::emulated {

/// The behaviour of the emulated NCCL. The environment sets it once:
/// RIPSTOP_EMULATED_NCCL=2.19|2.21|2.27|2.28 (default 2.28), whose behaviours are those of 2.19.3, 2.21.5,
/// 2.27.7 and 2.28.9; RIPSTOP_EMULATED_NCCL_WINDOWS=0, if the GPUs do not reach each other's memory, or
/// broken, if multicast fails, which windows use unless NCCL_NVLS_ENABLE is 0; RIPSTOP_EMULATED_NCCL_ROOM=n,
/// if n collectives fill the GPU (0: none does; default: from the seed, 1 to 3 if collectives have a launch
/// order); RIPSTOP_EMULATED_SEED.
struct NcclBehaviour {
  int version = 22809;
  /// 2.26 and later keep one job a group; before, a thread has one set of lists for all its groups.
  /// From then on every group of a communicator that does not block gets a thread, and a launch order is
  /// known.
  bool one_job_a_group = true;
  bool has_windows = true;       ///< 2.27 and later
  bool late_windows = true;      ///< 2.28: ncclCommWindowRegister returns ncclSuccess and writes later
  bool symmetric = true;         ///< the GPUs reach each other's memory
  bool multicast_fails = false;  ///< all its slots in the switches are taken
  /// NVLink switches add up, in an order of their own. As NCCL, NCCL_NVLS_ENABLE is read once.
  bool switches_add = true;
  uint64_t seed = 0;
};
const NcclBehaviour& behaviour();

/// A number that differs between calls, from the seed and this process's rank: below `end`.
uint64_t draw(uint64_t end);

/// Keeps `text` for ncclGetLastError and returns `result`.
ncclResult_t warn(ncclResult_t result, const std::string& text);
std::string last_warning();

/// A call that is to run on a stream.
struct Task {
  Call call;
  const void* send = nullptr;
  void* receive = nullptr;
  cudaStream_t stream = nullptr;
};

/// Memory that a communicator knows.
struct RegisteredMemory {
  const std::byte* begin = nullptr;
  int64_t bytes = 0;
  bool window = false, symmetric = false;
  int64_t references = 0;

  bool covers(const void* data, int64_t size) const {
    const auto* from = static_cast<const std::byte*>(data);
    return begin <= from && from + size <= begin + bytes;
  }
};

/// The part of a communicator that outlives it while work on a stream still uses it.
struct CommunicatorCore {
  std::unique_ptr<SharedExchange> exchange;
  std::string name;
  std::atomic<bool> abort{false};
  std::atomic<int64_t> plans_done{0}, plans_given{0};
  int64_t collectives = 0;  ///< of plans that have begun; of the thread that runs work
  std::mutex mutex;         ///< guards all below
  std::vector<Task> open;   ///< given to a stream and not done
};

/// The thread of a group of calls. Joined when the caller's thread learns that it is done.
struct GroupJob {
  std::thread thread;
  std::atomic<bool> done{false};
  bool joined = false;
  bool had_tasks = false;
  ncclResult_t result = ncclSuccess;
  std::string call;
  void join();
};

/// A job of a group that runs in its thread; `comm` is the communicator whose state it sets.
struct AsyncJob {
  ncclComm_t comm = nullptr;
  std::function<ncclResult_t()> run;
};

/// A registration that waits for the end of its group.
struct WindowTask {
  void* data = nullptr;
  int64_t bytes = 0;
  int flags = 0;
  ncclWindow_t* window = nullptr;
  RegisteredMemory* memory = nullptr;  ///< registered at the call (2.27); null: in the background
};

/// Begins a group, as ncclGroupStart and some other calls do. `group_end` returns what ncclGroupEnd
/// returns. `call` appears in messages.
void group_start();
ncclResult_t group_end(const char* call);
/// Keeps an error for the end of the thread's group, if one is open, and returns it.
ncclResult_t group_error(ncclResult_t result);
/// Adds a job, a task or a registration to the thread's group.
ncclResult_t add_job(AsyncJob job);
void add_task(ncclComm_t comm, const Task& task);
void add_window(ncclComm_t comm, const WindowTask& task);
/// Joins the communicator's finished group, as NCCL does when it reports success (2.26) or before the next
/// call (earlier versions).
void complete_group(ncclComm_t comm);

/// The status of a call that needs a communicator whose previous call is done.
ncclResult_t ensure_ready(ncclComm_t comm);
/// The status of a communicator as an argument. Ends the process if it was destroyed.
ncclResult_t check_communicator(ncclComm_t comm, const char* call);

/// Gives the tasks of a group to their stream, in the thread of the group.
ncclResult_t connect_tasks(ncclComm_t comm);
ncclResult_t launch_tasks(ncclComm_t comm);
/// Whether tasks must meet other ranks before they can be given to a stream.
bool needs_connections(ncclComm_t comm);
/// The body of a group's registrations.
ncclResult_t register_windows(ncclComm_t comm);

/// All communicators of this process that are not destroyed.
std::vector<ncclComm_t> living_communicators();

}  // namespace ripstop::emulated

/// The target of an ncclComm_t.
struct ncclComm {
  static constexpr uint64_t kMagic = 0x0280028002800280;
  uint64_t magic = kMagic;
  std::shared_ptr<ripstop::emulated::CommunicatorCore> core =
      std::make_shared<ripstop::emulated::CommunicatorCore>();
  int rank = -1, ranks = -1, device = -1;
  bool blocking = true;
  cudaStream_t own_stream = nullptr;  ///< takes a hardware queue, as NCCL's device stream
  std::atomic<ncclResult_t> async{ncclSuccess};
  std::shared_ptr<ripstop::emulated::GroupJob> group_job;
  std::shared_ptr<ripstop::emulated::CommunicatorCore> child;  ///< in a split under way
  bool finalize_called = false, destroy_called = false;
  bool connected = false;  ///< for collectives
  std::vector<bool> sends_connected, receives_connected;
  std::vector<ripstop::emulated::Task> tasks;  ///< of the thread's group
  std::vector<ripstop::emulated::WindowTask> window_tasks;
  std::vector<std::unique_ptr<ripstop::emulated::RegisteredMemory>> registered;

  ripstop::emulated::SharedExchange& exchange() const { return *core->exchange; }
};

/// The target of an ncclWindow_t.
struct ncclWindow_vidmem {
  ripstop::emulated::RegisteredMemory* memory = nullptr;
};
