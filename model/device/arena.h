#pragma once
#include <cstdint>

#include "model/device/device.h"
#include "model/device/tensor.h"

namespace ripstop {

/// A stack of activations and workspaces in one block of device memory. When a Frame ends, it frees all that
/// was allocated since it began. On kMeta the arena only counts: the peak of a step on kMeta is the capacity
/// that the step needs on the planned device. Not thread-safe.
class Arena {
 public:
  /// Allocates `capacity.total()` bytes at once, from `source`, or from the device if `source` is null, and
  /// charges the ledger by category. `capacity`: the peak() of an arena on kMeta for the same work. On
  /// kMeta neither allocates nor charges. Throws Error(kResources) if the device has too little memory.
  Arena(const Device& device, MemoryLedger& ledger, const MemoryUse& capacity = {},
        const MemorySource* source = nullptr);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns a tensor of unspecified elements, aligned to 256 bytes and valid until the innermost open Frame
  /// ends. Throws Error(kBug) if the capacity is exceeded, since the memory plan is then wrong.
  Tensor allocate(DType dtype, const Shape& shape, MemoryCategory category = MemoryCategory::kActivations);

  /// Bytes in use when the total was largest, by category.
  const MemoryUse& peak() const { return peak_; }
  void forget_peak() { peak_ = now_; }
  int64_t used_bytes() const { return now_.total(); }
  /// The arena's block; null on kMeta.
  void* data() const { return memory_.data(); }
  int64_t capacity_bytes() const { return memory_.bytes(); }
  const Device& device() const { return device_; }

  /// Call open_pending() when a communication with arena memory begins, and close_pending() when it is done.
  /// A communication must be done before the Frame in which it began ends (checked).
  void open_pending() { ++pending_; }
  void close_pending() { --pending_; }

 private:
  friend class Frame;
  Device device_;
  Buffer memory_;
  MemoryUse now_, peak_;
  int pending_ = 0;
};

/// A scope of an Arena. The Frame that began last ends first (checked).
class Frame {
 public:
  explicit Frame(Arena& arena) : arena_(&arena), mark_(arena.now_), pending_(arena.pending_) {}
  ~Frame();
  Frame(Frame&& other) noexcept : arena_(other.arena_), mark_(other.mark_), pending_(other.pending_) {
    other.arena_ = nullptr;
  }
  Frame& operator=(Frame&&) = delete;
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

 private:
  Arena* arena_;
  MemoryUse mark_;
  int pending_ = 0;  ///< communications that were open at the beginning
};

}  // namespace ripstop
