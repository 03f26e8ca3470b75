// The emulated NCCL's communicators: how they begin, split and end, and what their states tell meanwhile
// (NCCL's init.cc). CALLS.md says where each behaviour is taken from.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "tests/emulated_device/cuda_runtime.h"
#include "tests/emulated_device/nccl_state.h"
#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

struct Living {
  std::mutex mutex;
  std::set<ncclComm_t> all;
};
Living& living() {
  static auto* const kept = new Living;
  return *kept;
}

ncclComm_t make_communicator(bool blocking) {
  auto* comm = new ncclComm;
  comm->blocking = blocking;
  static_cast<void>(cudaStreamCreateWithFlags(&comm->own_stream, cudaStreamNonBlocking));
  const std::lock_guard lock(living().mutex);
  living().all.insert(comm);
  return comm;
}

void free_communicator(ncclComm_t comm) {
  {
    const std::lock_guard lock(living().mutex);
    living().all.erase(comm);
  }
  static_cast<void>(cudaStreamDestroy(comm->own_stream));
  delete comm;
}

// The message of the ranks of a group to each other when it begins or is split.
struct Introduction {
  enum class Kind : int64_t { kInit, kSplit, kPart } kind = Kind::kInit;
  int gpu = 0;  ///< its PCI bus, as NCCL compares them (init.cc 903)
  int64_t color = 0, key = 0;
  SharedMemoryName memory{};
};

template <class T>
SharedExchange::Record record_of(const T& value) {
  static_assert(sizeof(T) <= SharedExchange::kRecordBytes);
  SharedExchange::Record record{};
  std::memcpy(record.data(), &value, sizeof value);
  return record;
}

Introduction introduction_in(const SharedExchange::Record& record) {
  Introduction value;
  std::memcpy(&value, record.data(), sizeof value);
  return value;
}

// Meets the other ranks of a new communicator.
ncclResult_t meet(ncclComm_t comm, const SharedMemoryName& memory, int rank, int ranks,
                  CommunicatorCore* parent) {
  comm->rank = rank;
  comm->ranks = ranks;
  comm->sends_connected.assign(static_cast<size_t>(ranks), false);
  comm->receives_connected.assign(static_cast<size_t>(ranks), false);
  comm->core->exchange = std::make_unique<SharedExchange>(memory, rank, ranks);
  const Introduction own{.kind = Introduction::Kind::kInit,
                         .gpu = gpu_buses()[static_cast<size_t>(comm->device)]};
  const std::vector<SharedExchange::Record> all = comm->exchange().all_gather(record_of(own), [&] {
    return comm->core->abort.load() || (parent != nullptr && parent->abort.load());
  });
  if (all.empty()) return ncclInternalError;
  for (int r = 0; r < ranks; ++r)
    if (r != rank && introduction_in(all[static_cast<size_t>(r)]).gpu == own.gpu)
      return warn(ncclInvalidUsage, fmt::format("ranks {} and {} are on one GPU", rank, r));
  return ncclSuccess;
}

// The ranks of the parent that give this color, in the order of key and rank.
std::vector<int> ranks_of_color(const std::vector<SharedExchange::Record>& all, int64_t color) {
  std::vector<int> ranks;
  for (size_t r = 0; r < all.size(); ++r) {
    const Introduction other = introduction_in(all[r]);
    if (other.kind != Introduction::Kind::kSplit)
      refuse("ncclCommSplit", fmt::format("rank {} of the group is in another call", r));
    if (other.color == color) ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return introduction_in(all[static_cast<size_t>(a)]).key <
           introduction_in(all[static_cast<size_t>(b)]).key;
  });
  return ranks;
}

// A split has two rounds: who goes where, and where the first rank of each part has made its memory.
ncclResult_t split_in_background(ncclComm_t parent, ncclComm_t child, int color, int key) {
  const auto given_up = [&] { return parent->core->abort.load(); };
  Introduction own{.kind = Introduction::Kind::kSplit, .color = color, .key = key};
  const std::vector<SharedExchange::Record> all = parent->exchange().all_gather(record_of(own), given_up);
  if (all.empty()) return ncclInternalError;
  const std::vector<int> members = ranks_of_color(all, color);
  own.kind = Introduction::Kind::kPart;
  if (child != nullptr && members.front() == parent->rank) own.memory = make_shared_memory();
  const std::vector<SharedExchange::Record> parts = parent->exchange().all_gather(record_of(own), given_up);
  if (parts.empty()) return ncclInternalError;
  if (child == nullptr) return ncclSuccess;
  const auto at = std::find(members.begin(), members.end(), parent->rank) - members.begin();
  return meet(child, introduction_in(parts[static_cast<size_t>(members.front())]).memory,
              static_cast<int>(at), static_cast<int>(members.size()), parent->core.get());
}

bool is_one_of(int value, int a, int b) {
  return value == NCCL_CONFIG_UNDEF_INT || value == a || value == b;
}

// The struct as this version of NCCL sees it: a caller that was compiled with a newer header passes a longer
// one, whose end it does not read.
size_t bytes_of_config() {
  if (behaviour().version >= 22800) return sizeof(ncclConfig_t);
  if (behaviour().version >= 22703) return offsetof(ncclConfig_t, nChannelsPerNetPeer);
  return offsetof(ncclConfig_t, trafficClass);
}

// init.cc of 2.28.9, lines 1804-1956, as far as the fields mean something here.
ncclResult_t read_config(const ncclConfig_t& given, ncclConfig_t& config) {
  config = NCCL_CONFIG_INITIALIZER;
  size_t size = 0;
  std::memcpy(&size, &given, sizeof size);
  std::memcpy(&config, &given, std::min(size, bytes_of_config()));
  if (config.magic != 0xcafebeef)
    return warn(ncclInvalidArgument, "the ncclConfig_t was not made by NCCL_CONFIG_INITIALIZER");
  const auto refuse_field = [](const char* field, int value) {
    return warn(ncclInvalidArgument, fmt::format("ncclConfig_t::{} cannot be {}", field, value));
  };
  if (config.version < NCCL_VERSION(2, 14, 0)) config.blocking = NCCL_CONFIG_UNDEF_INT;
  if (!is_one_of(config.blocking, 0, 1)) return refuse_field("blocking", config.blocking);
  if (config.cgaClusterSize != NCCL_CONFIG_UNDEF_INT && config.cgaClusterSize < 0)
    return refuse_field("cgaClusterSize", config.cgaClusterSize);
  if (config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.minCTAs <= 0)
    return refuse_field("minCTAs", config.minCTAs);
  if ((config.maxCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs <= 0) || config.minCTAs > config.maxCTAs)
    return refuse_field("maxCTAs", config.maxCTAs);
  if (!is_one_of(config.splitShare, 0, 1)) return refuse_field("splitShare", config.splitShare);
  if (config.CTAPolicy != NCCL_CONFIG_UNDEF_INT) {
    // 2.27 knows DEFAULT and EFFICIENCY only.
    const int last = behaviour().late_windows ? NCCL_CTA_POLICY_ZERO : NCCL_CTA_POLICY_EFFICIENCY;
    if (config.CTAPolicy < NCCL_CTA_POLICY_DEFAULT || config.CTAPolicy > last)
      return refuse_field("CTAPolicy", config.CTAPolicy);
  }
  return ncclSuccess;
}

ncclResult_t null_argument(const char* call, const char* what) {
  return warn(ncclInvalidArgument, fmt::format("{}: {} is null", call, what));
}

ncclResult_t init(ncclComm_t* newcomm, int ranks, const ncclUniqueId& id, int rank,
                  const ncclConfig_t& given) {
  if (newcomm == nullptr) return null_argument("ncclCommInitRankConfig", "newcomm");
  *newcomm = nullptr;
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return warn(ncclInvalidArgument, fmt::format("rank {} of {}", rank, ranks));
  ncclConfig_t config;
  if (const ncclResult_t result = read_config(given, config); result != ncclSuccess) return result;
  ncclComm_t comm = make_communicator(config.blocking != 0);
  static_cast<void>(cudaGetDevice(&comm->device));
  comm->core->name = behaviour().has_windows && config.commName != nullptr ? config.commName : "communicator";
  // Only here is the caller's pointer written; the rest happens to the communicator.
  *newcomm = comm;
  SharedMemoryName memory;
  std::memcpy(&memory, id.internal, sizeof memory);
  return add_job({comm, [=] { return meet(comm, memory, rank, ranks, nullptr); }});
}

ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, const ncclConfig_t* given) {
  if (const ncclResult_t result = check_communicator(comm, "ncclCommSplit"); result != ncclSuccess)
    return result;
  if (newcomm == nullptr) return null_argument("ncclCommSplit", "newcomm");
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) {
    if (!behaviour().one_job_a_group) *newcomm = nullptr;
    return result;
  }
  *newcomm = nullptr;
  ncclComm_t child = nullptr;
  if (color != NCCL_SPLIT_NOCOLOR) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = comm->blocking ? 1 : 0;
    if (given != nullptr)
      if (const ncclResult_t result = read_config(*given, config); result != ncclSuccess) return result;
    child = make_communicator(config.blocking != 0);
    child->device = comm->device;
    child->core->name =
        behaviour().has_windows && config.commName != nullptr ? config.commName : "communicator";
  }
  return add_job({comm, [=] {
                    const ncclResult_t result = split_in_background(comm, child, color, key);
                    // Late, at the address of the call, and for a rank without a color as well.
                    if (draw(2) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1 + draw(20)));
                    std::atomic_ref<ncclComm_t>(*newcomm).store(child);
                    return result;
                  }});
}

// Returns when all work of the communicator is done. `given_up` for a communicator that is being aborted.
void wait_for_work(const CommunicatorCore& core) {
  while (core.plans_done.load() < core.plans_given.load() && !core.abort.load())
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

ncclResult_t finalize(ncclComm_t comm) {
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) return result;
  if (comm->finalize_called) return warn(ncclInvalidArgument, "ncclCommFinalize: called before");
  comm->finalize_called = true;
  return add_job({comm, [comm] {
                    wait_for_work(*comm->core);
                    return ncclSuccess;
                  }});
}

// The end of ncclCommDestroy and ncclCommAbort.
ncclResult_t reclaim(ncclComm_t comm) {
  if (!comm->finalize_called) wait_for_work(*comm->core);
  free_communicator(comm);
  return ncclSuccess;
}

}  // namespace

std::vector<ncclComm_t> living_communicators() {
  const std::lock_guard lock(living().mutex);
  return {living().all.begin(), living().all.end()};
}

ncclResult_t check_communicator(ncclComm_t comm, const char* call) {
  if (comm == nullptr) return null_argument(call, "comm");
  const std::lock_guard lock(living().mutex);
  if (living().all.count(comm) == 0) refuse(call, "this communicator was destroyed, or never was one");
  return ncclSuccess;
}

ncclResult_t ensure_ready(ncclComm_t comm) {
  if (comm->core->abort.load()) {
    complete_group(comm);
    return ncclSuccess;
  }
  ncclResult_t state = ncclSuccess;
  static_cast<void>(ncclCommGetAsyncError(comm, &state));
  if (state == ncclInProgress)
    return warn(ncclInvalidArgument,
                "Attempt to use communicator before the previous operation returned ncclSuccess");
  if (state == ncclSuccess) complete_group(comm);
  return state;
}

}  // namespace ripstop::emulated

using namespace ripstop::emulated;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return ncclInvalidArgument;
  *version = behaviour().version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  thread_local std::string text;
  text = last_warning();
  return text.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return null_argument("ncclGetUniqueId", "id");
  std::memset(id, 0, sizeof *id);
  const SharedMemoryName memory = make_shared_memory();
  std::memcpy(id->internal, &memory, sizeof memory);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* newcomm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const ncclConfig_t none = NCCL_CONFIG_INITIALIZER;
  group_start();
  ncclResult_t result = group_error(init(newcomm, ranks, id, rank, config == nullptr ? none : *config));
  if (const ncclResult_t ended = group_end("ncclCommInitRankConfig");
      ended != ncclSuccess && ended != ncclInProgress)
    return ended;
  if (newcomm != nullptr && *newcomm != nullptr && !(*newcomm)->blocking)
    static_cast<void>(ncclCommGetAsyncError(*newcomm, &result));
  return result;
}

ncclResult_t ncclCommInitRank(ncclComm_t* newcomm, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(newcomm, ranks, id, rank, nullptr);
}

// The call returns, whatever runs in the background, the status of its own part: ncclSuccess.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  group_start();
  const ncclResult_t result = group_error(split(comm, color, key, newcomm, config));
  const ncclResult_t ended = group_end("ncclCommSplit");
  return ended != ncclSuccess && ended != ncclInProgress ? ended : result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (const ncclResult_t result = check_communicator(comm, "ncclCommGetAsyncError"); result != ncclSuccess)
    return result;
  if (state == nullptr) return null_argument("ncclCommGetAsyncError", "asyncError");
  *state = comm->async.load();
  if (*state == ncclSuccess && behaviour().one_job_a_group) complete_group(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  if (const ncclResult_t result = check_communicator(comm, "ncclCommCount"); result != ncclSuccess)
    return result;
  if (count == nullptr) return null_argument("ncclCommCount", "count");
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) return result;
  *count = comm->ranks;
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  if (const ncclResult_t result = check_communicator(comm, "ncclCommUserRank"); result != ncclSuccess)
    return result;
  if (rank == nullptr) return null_argument("ncclCommUserRank", "rank");
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) return result;
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  static_cast<void>(check_communicator(comm, "ncclCommFinalize"));
  group_start();
  ncclResult_t result = group_error(finalize(comm));
  if (result != ncclSuccess && !comm->blocking) comm->async.store(result);
  const ncclResult_t ended = group_end("ncclCommFinalize");
  if (ended != ncclSuccess && ended != ncclInProgress) return ended;
  if (!comm->blocking) static_cast<void>(ncclCommGetAsyncError(comm, &result));
  return result;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  static_cast<void>(check_communicator(comm, "ncclCommDestroy"));
  if (behaviour().one_job_a_group) group_start();
  comm->destroy_called = true;
  // From 2.26 on, this return leaves the group open, and no later call of the thread starts anything.
  if (const ncclResult_t result = ensure_ready(comm); result != ncclSuccess) return result;
  if (!behaviour().one_job_a_group) return reclaim(comm);
  const ncclResult_t result = group_error(add_job({comm, [comm] { return reclaim(comm); }}));
  static_cast<void>(group_end("ncclCommDestroy"));
  return result;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  static_cast<void>(check_communicator(comm, "ncclCommAbort"));
  if (behaviour().one_job_a_group) group_start();
  comm->core->abort.store(true);
  comm->destroy_called = true;
  static_cast<void>(ensure_ready(comm));
  if (!behaviour().one_job_a_group) return reclaim(comm);
  const ncclResult_t result = group_error(add_job({comm, [comm] { return reclaim(comm); }}));
  static_cast<void>(group_end("ncclCommAbort"));
  return result;
}

ncclResult_t ncclGroupStart() {
  group_start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  return group_end("a group of calls");
}

}  // extern "C"
