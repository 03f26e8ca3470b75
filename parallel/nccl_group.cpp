#include "parallel/nccl_group.h"

#include <cstdlib>
#include <string_view>
#include <utility>

#include "parallel/mesh_axes.h"
#include "parallel/nccl_library.h"

namespace ripstop {

NcclGroup::NcclGroup(std::shared_ptr<NcclWorld> world, std::unique_ptr<Communicator> host, int device)
    : world_(std::move(world)), host_(std::move(host)), stream_(Device::cuda(device), /*urgent=*/true) {
  cuda_stream(stream_).set_waiter(world_);
  world_->groups.push_back(this);
}

NcclGroup::~NcclGroup() {
  finish();
  std::erase(world_->groups, this);
  // Leak the results, because a thread of NCCL may still write to them.
  if (comm_ != nullptr) static_cast<void>(new auto(std::move(results_)));
}

void NcclGroup::finish() {
  // While an exception unwinds, NCCL could wait for ranks that are gone.
  if (comm_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    stream_.synchronize();
    check(ncclCommFinalize(comm_), "ncclCommFinalize");
    static_cast<void>(ncclCommDestroy(comm_));
    comm_ = nullptr;
  } catch (const Error&) {
    abort();
  }
}

void NcclGroup::abort() {
  if (comm_ != nullptr) static_cast<void>(ncclCommAbort(comm_));
  comm_ = nullptr;
}

// Collectives of fsdp and replicate, and messages between stages, run beside compute. Layers mostly wait for
// the tensor axis, whose collectives may therefore take the whole GPU.
ncclConfig_t NcclGroup::config() const {
  const std::string& name = host_->name();
  const bool beside_kernels = name == kFsdpAxis || name == kReplicateAxis || name == kPipelineAxis;
  return nccl_config(name.c_str(), beside_kernels);
}

void NcclGroup::initialize(bool deterministic) {
  // Without this variable, collectives of several groups may begin in different orders on different ranks and
  // deadlock. NCCL reads the variable when the first group is made.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  if (deterministic) {
    // NVLS off, because NVLink switches add in an order that changes between runs.
    setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/1);
    // With Ring, network switches do not add either (CollNet).
    setenv("NCCL_ALGO", "Ring", /*overwrite=*/0);
  }
  ncclUniqueId id{};
  if (host_->rank() == 0) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const Stream on_host(Device::cpu());
  const Tensor bytes{&id, DType::kInt32, {static_cast<int64_t>(sizeof id / 4)}, Device::cpu()};
  host_->broadcast(on_host, bytes, 0);
  ncclConfig_t chosen = config();
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, static_cast<int>(host_->size()), id,
                                                     static_cast<int>(host_->rank()), &chosen);
  check(result, "ncclCommInitRank");
}

void NcclGroup::initialize_part(NcclGroup& whole, int64_t color, int64_t key) {
  ncclConfig_t chosen = config();
  const bool alone = host_->size() == 1;
  const int part = alone ? NCCL_SPLIT_NOCOLOR : static_cast<int>(color);
  // A rank without a new group waits, too, because NCCL's thread works for all ranks of `whole`.
  comm_ = static_cast<ncclComm_t>(whole.wait_for_result("ncclCommSplit", [&](void** place) {
    return ncclCommSplit(whole.comm_, part, static_cast<int>(key), reinterpret_cast<ncclComm_t*>(place),
                         &chosen);
  }));
  if (!alone && comm_ == nullptr)
    fail(ExitCode::kCommunication, "ncclCommSplit on {} gave no group {}", whole.host().name(),
         host_->name());
}

// Waits even if the call returns success: a split returns success at once, and since NCCL 2.28 registering a
// window does, too. After an error (a lost rank) NCCL may still write, so `place` stays in results_.
void* NcclGroup::wait_for_result(const char* call, FunctionRef<ncclResult_t(void**)> start) {
  void*& place = results_.emplace_back(nullptr);
  const ncclResult_t begun = start(&place);
  check(begun == ncclSuccess ? ncclInProgress : begun, call);
  return place;
}

void NcclGroup::check(ncclResult_t result, const char* call) {
  if (result == ncclInProgress) {
    host_->await(call, [&] {
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
      return result != ncclInProgress;
    });
    // NCCL before 2.26 keeps its thread-local lists for `call` until another call on this communicator
    // reports success. Until then, a call on another communicator would use these lists and crash.
    int ranks = 0;
    if (result == ncclSuccess) result = ncclCommCount(comm_, &ranks);
  }
  if (result == ncclSuccess) return;
  throw Error(ExitCode::kCommunication,
              fmt::format("{} on {}: {}: {}", call, host_->name(), ncclGetErrorString(result),
                          ncclGetLastError(comm_)),
              std::string_view(call).starts_with("ncclComm")
                  ? "NCCL_DEBUG=WARN makes NCCL say more; NCCL_NVLS_ENABLE=0 does without multicast, and "
                    "NCCL_WIN_ENABLE=0 without windows"
                  : "NCCL_DEBUG=WARN makes NCCL say more");
}

// Waits for the collectives under way, oldest first, each with a deadline, until done() is true.
void NcclWorld::await(FunctionRef<bool()> done) {
  while (!done()) {
    NcclGroup* group = nullptr;
    const OpenCollective* first = nullptr;
    for (NcclGroup* each : groups)
      if (const OpenCollective* oldest = each->oldest();
          oldest != nullptr && (first == nullptr || oldest->sequence < first->sequence)) {
        group = each;
        first = oldest;
      }
    // Without a collective under way, any group can check the other ranks.
    if (group == nullptr) group = groups.front();
    int64_t turn = 0;
    group->host().await(first == nullptr ? "work of the GPU" : first->operation, [&] {
      if (turn++ % 64 == 0) group->check_health();
      return done() || (first != nullptr && first->end.is_reached());
    });
  }
}

void NcclGroup::check_health() {
  if (comm_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  check(asked != ncclSuccess ? asked : state == ncclInProgress ? ncclSuccess : state, "a collective");
}

void NcclGroup::begin(const Stream& caller, const Event* behind) {
  cuda_stream(caller).set_waiter(world_);
  // A GPU blocks the host after about a thousand launches, and a blocked host could not see that a rank is
  // lost. So only kMostOpen collectives of a group may be under way.
  constexpr size_t kMostOpen = 8;
  while (oldest() != nullptr && open_.size() >= kMostOpen) {
    const std::shared_ptr<OpenCollective> first = open_.front();
    world_->await([&] { return first->end.is_reached(); });
  }
  if (behind != nullptr) return behind->make_wait(stream_);
  // The collective must wait until the caller's kernels have written its input.
  issued_.record(native_stream(caller));
  issued_.make_wait(native());
}

std::shared_ptr<OpenCollective> NcclGroup::end(const char* operation) {
  auto collective = std::make_shared<OpenCollective>(operation, world_->sequence++);
  collective->end.record(native());
  open_.push_back(collective);
  return collective;
}

const OpenCollective* NcclGroup::oldest() {
  while (!open_.empty() && open_.front()->end.is_reached()) open_.pop_front();
  return open_.empty() ? nullptr : open_.front().get();
}

namespace {

// A symmetric window or, if NCCL gives none, a registration for this rank alone.
class NcclRegistration final : public Registration {
 public:
  NcclRegistration(NcclGroup& group, void* data, int64_t bytes) : group_(group) {
    window_ = group.wait_for_result("ncclCommWindowRegister", [&](void** place) {
      return register_window(group.comm(), data, bytes, place);
    });
    if (window_ == nullptr)
      group.check(ncclCommRegister(group.comm(), data, static_cast<size_t>(bytes), &handle_),
                  "ncclCommRegister");
  }
  bool is_window() const override { return window_ != nullptr; }
  ~NcclRegistration() override {
    // While an exception unwinds, the work under way could wait for ranks that are gone.
    if (std::uncaught_exceptions() > 0 || group_.comm() == nullptr) return;
    try {
      group_.stream().synchronize();
      if (window_ != nullptr)
        group_.check(deregister_window(group_.comm(), window_), "ncclCommWindowDeregister");
      if (handle_ != nullptr) group_.check(ncclCommDeregister(group_.comm(), handle_), "ncclCommDeregister");
    } catch (const Error&) {
      group_.abort();  // drops all registrations
    }
  }

 private:
  NcclGroup& group_;
  void *window_ = nullptr, *handle_ = nullptr;
};

}  // namespace

std::unique_ptr<Registration> NcclGroup::register_memory(void* data, int64_t bytes) {
  return std::make_unique<NcclRegistration>(*this, data, bytes);
}

}  // namespace ripstop
