// The emulated NCCL's calls that move data: what is checked at the call, how the calls of a group become work
// on a stream, and the order in which that work begins (NCCL's enqueue.cc).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tests/emulated_device/nccl_transfers.h"
#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

// The collectives of all communicators of this process's GPU. With NCCL_LAUNCH_ORDER_IMPLICIT (2.26 and
// later) each begins after those that the host gave before it have begun; without it in any order. While one
// runs it keeps its place on the GPU, and waits there for other ranks.
class LaunchOrder {
 public:
  int64_t give() {
    const std::lock_guard lock(mutex_);
    return next_++;
  }
  bool may_begin(int64_t ticket) {
    const std::lock_guard lock(mutex_);
    if ((ordered_ && ticket != begun_) || (room_ > 0 && running_ >= room_)) return false;
    ++begun_;
    ++running_;
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    --running_;
  }

 private:
  std::mutex mutex_;
  // NCCL does the same when the first collective is given.
  const bool ordered_ =
      behaviour().version >= 22602 && from_environment("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
  const int64_t room_ = from_environment("RIPSTOP_EMULATED_NCCL_ROOM",
                                         ordered_ ? 1 + static_cast<int64_t>(behaviour().seed % 3) : 0);
  int64_t next_ = 0, begun_ = 0, running_ = 0;
};
LaunchOrder& launch_order() {
  static auto* const kept = new LaunchOrder;
  return *kept;
}

int64_t bytes_read(const Task& task, int ranks) {
  const int64_t bytes = task.call.bytes();
  return task.call.kind == Call::Kind::kReduceScatter ? bytes * ranks : bytes;
}
int64_t bytes_written(const Task& task, int ranks) {
  const int64_t bytes = task.call.bytes();
  return task.call.kind == Call::Kind::kAllGather ? bytes * ranks : bytes;
}

void check_memory(const CommunicatorCore& core, const Task& task, int rank, int ranks, const char* when) {
  const bool reads =
      task.send != nullptr && (task.call.kind != Call::Kind::kBroadcast || task.call.peer == rank);
  const auto check = [&](const void* data, int64_t bytes, const char* what) {
    if (bytes > 0 && !on_device(data, bytes))
      refuse(to_text(task.call), fmt::format("on {}, {}: [{}, + {} bytes) to {} is no memory of the device",
                                             core.name, when, data, bytes, what));
  };
  if (reads) check(task.send, bytes_read(task, ranks), "read");
  if (task.receive != nullptr) check(task.receive, bytes_written(task, ranks), "write");
}

// NCCL allows output over input only in these places.
void check_overlap(const CommunicatorCore& core, const Task& task, int rank, int ranks) {
  if (task.send == nullptr || task.receive == nullptr) return;
  const auto* send = static_cast<const std::byte*>(task.send);
  const auto* receive = static_cast<const std::byte*>(task.receive);
  const int64_t bytes = task.call.bytes();
  if (send + bytes_read(task, ranks) <= receive || receive + bytes_written(task, ranks) <= send) return;
  const int64_t place = task.call.kind == Call::Kind::kAllGather       ? rank * bytes
                        : task.call.kind == Call::Kind::kReduceScatter ? -rank * bytes
                                                                       : 0;
  if (send - receive != place)
    refuse(to_text(task.call), fmt::format("on {}: input and output overlap, and not in place", core.name));
}

// Where in its window the memory lies that other ranks' GPUs access, if both buffers are in windows.
int64_t window_offset(ncclComm_t comm, const Task& task) {
  const auto find = [&](const void* data, int64_t bytes) -> const RegisteredMemory* {
    for (const auto& known : comm->registered)
      if (known->window && known->symmetric && known->covers(data, bytes)) return known.get();
    return nullptr;
  };
  const RegisteredMemory* send = find(task.send, bytes_read(task, comm->ranks));
  const RegisteredMemory* receive = find(task.receive, bytes_written(task, comm->ranks));
  if (send == nullptr || receive == nullptr) return -1;
  const auto* begin = static_cast<const std::byte*>(task.receive);
  switch (task.call.kind) {
    case Call::Kind::kAllGather:
    case Call::Kind::kAllReduce:
      return begin - receive->begin;
    case Call::Kind::kReduceScatter:
      return static_cast<const std::byte*>(task.send) - send->begin;
    default:
      return -1;
  }
}

// The collectives of a group, one after another, and then its sends and receives: one kernel of NCCL.
class Plan {
 public:
  Plan(std::shared_ptr<CommunicatorCore> core, std::vector<Task> tasks)
      : core_(std::move(core)),
        tasks_(std::move(tasks)),
        number_(core_->plans_given.fetch_add(1)),
        ticket_(launch_order().give()) {
    const std::lock_guard lock(core_->mutex);
    core_->open.insert(core_->open.end(), tasks_.begin(), tasks_.end());
  }

  bool progress() {
    if (!begun_ && !begin()) return false;
    if (core_->abort.load()) return end();
    // Seldom as much as fits, so that memory that is changed too early is read after the change.
    while (at_ < transfers_.size() && transfers_[at_]->progress(static_cast<int64_t>(1 + draw(32)))) ++at_;
    return at_ == transfers_.size() ? end() : false;
  }

 private:
  bool begin() {
    // The kernels of one communicator wait for each other, whatever their streams.
    if (number_ != core_->plans_done.load() || !launch_order().may_begin(ticket_)) return false;
    begun_ = true;
    SharedExchange& exchange = *core_->exchange;
    std::vector<Task> exchanged;
    for (const Task& task : tasks_) {
      if (!core_->abort.load()) check_memory(*core_, task, exchange.rank(), exchange.ranks(), "when it runs");
      if (task.call.kind == Call::Kind::kSend || task.call.kind == Call::Kind::kReceive)
        exchanged.push_back(task);
      else
        transfers_.push_back(make_collective(*core_, task, core_->collectives++));
    }
    if (!exchanged.empty()) transfers_.push_back(make_exchange(*core_, exchanged));
    return true;
  }

  bool end() {
    launch_order().end();
    {
      const std::lock_guard lock(core_->mutex);
      core_->open.erase(core_->open.begin(), core_->open.begin() + static_cast<int64_t>(tasks_.size()));
    }
    core_->plans_done.fetch_add(1);
    return true;
  }

  std::shared_ptr<CommunicatorCore> core_;
  std::vector<Task> tasks_;
  std::vector<std::unique_ptr<Transfer>> transfers_;
  int64_t number_, ticket_;
  size_t at_ = 0;
  bool begun_ = false;
};

bool is_exchange(const Task& task) {
  return task.call.kind == Call::Kind::kSend || task.call.kind == Call::Kind::kReceive;
}

// Whether the connection of a send or receive is still to be made.
bool lacks_connection(ncclComm_t comm, const Task& task) {
  if (!is_exchange(task) || task.call.peer == comm->rank) return false;
  const auto& made = task.call.kind == Call::Kind::kSend ? comm->sends_connected : comm->receives_connected;
  return !made[static_cast<size_t>(task.call.peer)];
}

ncclResult_t check_task(ncclComm_t comm, const Task& task) {
  if (task.call.peer < 0 || task.call.peer >= comm->ranks)
    return warn(ncclInvalidArgument, fmt::format("{}: there is no such rank", to_text(task.call)));
  if (task.call.element_bytes() == 0)
    return warn(ncclInvalidArgument, fmt::format("{}: unknown type", to_text(task.call)));
  if (comm->finalize_called) refuse(to_text(task.call), "this communicator was finalized");
  check_memory(*comm->core, task, comm->rank, comm->ranks, "at the call");
  check_overlap(*comm->core, task, comm->rank, comm->ranks);
  return ncclSuccess;
}

void give(ncclComm_t comm, const std::vector<Task>& tasks) {
  auto plan = std::make_shared<Plan>(comm->core, tasks);
  std::string name = fmt::format("{} on {}", to_text(tasks.front().call), comm->core->name);
  submit(tasks.front().stream, std::move(name), [plan] { return plan->progress(); });
}

ncclResult_t append(ncclComm_t comm, Task task) {
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) return result;
  if (const ncclResult_t result = check_task(comm, task); result != ncclSuccess) return result;
  if (task.call.count == 0 && !is_exchange(task)) return ncclSuccess;
  task.call.window_offset = window_offset(comm, task);
  // One rank alone needs no group: the call gives the copy to the stream itself.
  if (comm->ranks == 1 && !is_exchange(task))
    give(comm, {task});
  else
    add_task(comm, task);
  return ncclSuccess;
}

ncclResult_t enqueue(ncclComm_t comm, const Task& task) {
  const std::string text = to_text(task.call);
  if (const ncclResult_t result = check_communicator(comm, text.c_str()); result != ncclSuccess)
    return group_error(result);
  group_start();
  ncclResult_t result = append(comm, task);
  if (result != ncclSuccess && !comm->blocking) comm->async.store(result);
  group_error(result);
  const std::string call = fmt::format("{} on {}", text, comm->core->name);
  if (const ncclResult_t ended = group_end(call.c_str()); ended != ncclSuccess && ended != ncclInProgress)
    return ended;
  if (!comm->blocking) static_cast<void>(ncclCommGetAsyncError(comm, &result));
  return result;
}

}  // namespace

bool needs_connections(ncclComm_t comm) {
  return std::any_of(comm->tasks.begin(), comm->tasks.end(),
                     [&](const Task& task) { return lacks_connection(comm, task); });
}

// A connection is made when both sides have asked for it: until then the call is in progress. From 2.26 on
// collectives connect at their first use as well, all ranks together.
ncclResult_t connect_tasks(ncclComm_t comm) {
  const auto wait = [&](int from, int to) {
    while (!comm->exchange().connect(from, to)) {
      if (comm->core->abort.load()) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  };
  for (const Task& task : comm->tasks) {
    if (!lacks_connection(comm, task)) continue;
    const bool sends = task.call.kind == Call::Kind::kSend;
    static_cast<void>(
        comm->exchange().connect(sends ? comm->rank : task.call.peer, sends ? task.call.peer : comm->rank));
  }
  for (const Task& task : comm->tasks) {
    if (!lacks_connection(comm, task)) continue;
    const bool sends = task.call.kind == Call::Kind::kSend;
    if (!wait(sends ? comm->rank : task.call.peer, sends ? task.call.peer : comm->rank))
      return ncclInternalError;
    (sends ? comm->sends_connected : comm->receives_connected)[static_cast<size_t>(task.call.peer)] = true;
  }
  const bool collective = std::any_of(comm->tasks.begin(), comm->tasks.end(),
                                      [](const Task& task) { return !is_exchange(task); });
  if (collective && !comm->connected && behaviour().one_job_a_group && comm->ranks > 1) {
    if (comm->exchange().all_gather({}, [&] { return comm->core->abort.load(); }).empty())
      return ncclInternalError;
    comm->connected = true;
  }
  return ncclSuccess;
}

ncclResult_t launch_tasks(ncclComm_t comm) {
  if (comm->tasks.empty()) return ncclSuccess;
  int64_t to_self = 0, from_self = 0;
  for (const Task& task : comm->tasks) {
    if (task.stream != comm->tasks.front().stream)
      refuse("a group of NCCL calls", "two streams for one communicator: the emulated NCCL takes one");
    if (is_exchange(task) && task.call.peer == comm->rank)
      ++(task.call.kind == Call::Kind::kSend ? to_self : from_self);
  }
  if (to_self != from_self)
    return warn(ncclInvalidUsage, "a send to the own rank has no receive in its group");
  give(comm, comm->tasks);
  return ncclSuccess;
}

}  // namespace ripstop::emulated

using namespace ripstop::emulated;

extern "C" {

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kAllGather, .datatype = type, .count = static_cast<int64_t>(count)};
  return enqueue(comm, {call, send, receive, stream});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kReduceScatter,
                  .datatype = type,
                  .reduction = reduction,
                  .count = static_cast<int64_t>(count)};
  return enqueue(comm, {call, send, receive, stream});
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
  const Call call{.kind = Call::Kind::kAllReduce,
                  .datatype = type,
                  .reduction = reduction,
                  .count = static_cast<int64_t>(count)};
  return enqueue(comm, {call, send, receive, stream});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const Call call{
      .kind = Call::Kind::kBroadcast, .datatype = type, .peer = root, .count = static_cast<int64_t>(count)};
  return enqueue(comm, {call, send, receive, stream});
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Call call{
      .kind = Call::Kind::kSend, .datatype = type, .peer = peer, .count = static_cast<int64_t>(count)};
  return enqueue(comm, {call, data, nullptr, stream});
}

ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  const Call call{
      .kind = Call::Kind::kReceive, .datatype = type, .peer = peer, .count = static_cast<int64_t>(count)};
  return enqueue(comm, {call, nullptr, data, stream});
}

}  // extern "C"
