// Arena: activations and scratch, as a stack with a known peak.
#pragma once
#include <cstdint>

#include "model/device/device.h"
#include "model/device/tensor.h"

namespace ripstop {

/// A stack of tensors in one block of device memory. Lifetimes nest: a Frame gives back, when it ends, all
/// that was allocated after it began. On kMeta nothing is stored, only counted, so the peak of a step on
/// kMeta is the capacity that the same step needs on the planned device. Not thread-safe.
class Arena {
 public:
  /// Takes `capacity.total()` bytes at once and charges the ledger by `capacity`'s categories. `capacity` is
  /// the `peak()` of the same work on kMeta. On kMeta itself the capacity is ignored, and nothing is taken or
  /// charged.
  Arena(const Device& device, MemoryLedger& ledger, const MemoryUse& capacity = {});
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A tensor with unspecified elements, aligned to 256 bytes, valid until the innermost open Frame ends.
  /// Throws Error(kBug) where the capacity is exceeded: the plan was wrong.
  Tensor allocate(DType dtype, const Shape& shape, MemoryCategory category = MemoryCategory::kActivations);

  /// Bytes in use when the total was largest, by category.
  const MemoryUse& peak() const { return peak_; }
  int64_t used_bytes() const { return now_.total(); }
  const Device& device() const { return device_; }

  /// Counts communications under way in arena memory; a Frame must not end before those that were opened in
  /// it (checked).
  void open_pending() { ++pending_; }
  void close_pending() { --pending_; }

 private:
  friend class Frame;
  Device device_;
  MemoryLedger* ledger_;
  MemoryUse capacity_, now_, peak_;
  void* memory_ = nullptr;
  int pending_ = 0;
};

/// A scope of an Arena. Frames end in reverse order of their beginning (checked).
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
  int pending_ = 0;  ///< communications open when it began
};

}  // namespace ripstop
