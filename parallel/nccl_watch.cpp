
#include "parallel/nccl_group.h"

namespace ripstop {
namespace {

// The largest number of collectives under way in one group. A GPU blocks the host after about a thousand
// launches, and a blocked host could not see that a rank is lost.
constexpr size_t kMostOpen = 8;

}  // namespace

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
      return done() || (first != nullptr && is_reached(first->end.native()));
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
  while (oldest() != nullptr && open_.size() >= kMostOpen) {
    const std::shared_ptr<OpenCollective> first = open_.front();
    world_->await([&] { return is_reached(first->end.native()); });
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
  while (!open_.empty() && is_reached(open_.front()->end.native())) open_.pop_front();
  return open_.empty() ? nullptr : open_.front().get();
}

}  // namespace ripstop
