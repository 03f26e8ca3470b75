// Start-up, split and end of NCCL's groups, and the registration of their memory.
#include "parallel/nccl_group.h"

#include <cstdlib>
#include <utility>

#include "parallel/nccl_library.h"

namespace ripstop {

NcclGroup::NcclGroup(std::shared_ptr<NcclWorld> world, std::unique_ptr<Communicator> host, int device)
    : world_(std::move(world)), host_(std::move(host)), stream_(Device::cuda(device), /*urgent=*/true) {
  world_->groups.push_back(this);
}

NcclGroup::~NcclGroup() {
  std::erase(world_->groups, this);
  // While an exception unwinds, other ranks may be gone, and NCCL would wait for them.
  if (comm_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    stream_.synchronize();
    check(ncclCommFinalize(comm_), "ncclCommFinalize");
    static_cast<void>(ncclCommDestroy(comm_));
  } catch (const Error&) {  // the group is broken: abort instead of waiting
    static_cast<void>(ncclCommAbort(comm_));
  }
}

// The fsdp axis gathers and reduces while layers compute. Layers mostly wait for the tensor axis, so that
// axis may take the whole GPU.
ncclConfig_t NcclGroup::config() const {
  return nccl_config(host_->name().c_str(), /*beside_kernels=*/host_->name() == kFsdpAxis);
}

void NcclGroup::initialize() {
  // Without this, collectives of several groups may begin in different orders on different ranks and wait for
  // each other for ever. NCCL reads the variable when the first group is made.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  // Rank 0 makes the number by which the others find it. MPI carries it.
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
  whole.check(ncclCommSplit(whole.comm_, part, static_cast<int>(key), &comm_, &chosen), "ncclCommSplit");
  // The new group is ready later than the call returns.
  if (!alone) check(ncclInProgress, "ncclCommSplit");
}

void NcclGroup::check(ncclResult_t result, const char* call) {
  if (result == ncclInProgress)
    host_->await(call, [&] {
      const ncclResult_t asked = ncclCommGetAsyncError(comm_, &result);
      if (asked != ncclSuccess) result = asked;
      return result != ncclInProgress;
    });
  if (result == ncclSuccess) return;
  throw Error(ExitCode::kCommunication,
              fmt::format("{} on {}: {}: {}", call, host_->name(), ncclGetErrorString(result),
                          ncclGetLastError(comm_)),
              "NCCL_DEBUG=WARN makes NCCL say more");
}

namespace {

// Registers memory as a symmetric window, or, if this NCCL has no windows, for this rank alone.
class NcclRegistration final : public Registration {
 public:
  NcclRegistration(NcclGroup& group, void* data, int64_t bytes) : group_(group) {
    group.check(register_window(group.comm(), data, bytes, &window_), "ncclCommWindowRegister");
    if (window_ == nullptr)
      group.check(ncclCommRegister(group.comm(), data, static_cast<size_t>(bytes), &handle_),
                  "ncclCommRegister");
  }
  ~NcclRegistration() override {
    // While an exception unwinds, other ranks may be gone, and the work under way would wait for them.
    if (std::uncaught_exceptions() > 0) return;
    try {
      group_.stream().synchronize();
      if (window_ != nullptr)
        group_.check(deregister_window(group_.comm(), window_), "ncclCommWindowDeregister");
      if (handle_ != nullptr) group_.check(ncclCommDeregister(group_.comm(), handle_), "ncclCommDeregister");
    } catch (const Error&) {  // the group is broken: NCCL drops its registrations with it
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
