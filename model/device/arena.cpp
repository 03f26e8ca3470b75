#include "model/device/arena.h"

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "model/core/rounding.h"

namespace ripstop {

Arena::Arena(const Device& device, MemoryLedger& ledger, const MemoryUse& capacity,
             const MemorySource* source)
    : device_(device) {
  if (device.kind != DeviceKind::kMeta) memory_ = Buffer(device, ledger, capacity, source);
}

Tensor Arena::allocate(DType dtype, const Shape& shape, MemoryCategory category) {
  Tensor t{nullptr, dtype, shape, device_};
  const int64_t offset = now_.total();
  const int64_t bytes = round_up(t.bytes(), kMemoryAlignment);
  now_[category] += bytes;
  if (now_.total() > peak_.total()) peak_ = now_;
  if (device_.kind == DeviceKind::kMeta) {
    // An address that is never read: not null, which means "no tensor", and aligned like a real one.
    t.data = reinterpret_cast<void*>(kMemoryAlignment + offset);
    return t;
  }
  RIPSTOP_CHECK(offset + bytes <= capacity_bytes(), "arena of {} bytes is full: {} in use, {} asked for",
                capacity_bytes(), offset, bytes);
  t.data = static_cast<std::byte*>(data()) + offset;
  return t;
}

Frame::~Frame() {
  if (arena_ == nullptr) return;
  // While an exception unwinds, frames may end out of order, and abort() would hide the exception.
  if (std::uncaught_exceptions() == 0 &&
      (arena_->pending_ > pending_ || arena_->now_.total() < mark_.total())) {
    // A destructor must not throw. If the program continued, two tensors could share memory.
    std::fputs("ripstop: an arena frame ended out of order or under a pending communication\n", stderr);
    std::abort();
  }
  arena_->now_ = mark_;
}

}  // namespace ripstop
