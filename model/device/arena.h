// Arena: activations and workspaces, as a stack with a known peak.
#pragma once
#include <cstdint>

#include "model/device/device.h"
#include "model/device/tensor.h"

namespace ripstop {

/// A stack of tensors in one block of device memory. Lifetimes nest: at its end a Frame frees everything that
/// was allocated after its beginning. On kMeta the arena stores nothing and only counts, so the peak of a
/// step on kMeta is the capacity that the same step needs on the planned device. Not thread-safe.
class Arena {
 public:
  /// Allocates `capacity.total()` bytes at once, from `source`, or from the device if `source` is null.
  /// Charges the ledger by the categories of `capacity`: the peak() of an arena on kMeta in which the same
  /// work ran. On kMeta itself ignores `capacity`, and neither allocates nor charges. Throws
  /// Error(kResources) if the device has too little memory.
  Arena(const Device& device, MemoryLedger& ledger, const MemoryUse& capacity = {},
        const MemorySource* source = nullptr);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns a tensor with unspecified elements, aligned to 256 bytes and valid until the innermost open
  /// Frame ends. Throws Error(kBug) if the capacity is exceeded, which means that the memory plan was wrong.
  Tensor allocate(DType dtype, const Shape& shape, MemoryCategory category = MemoryCategory::kActivations);

  /// Bytes in use when the total was largest, by category.
  const MemoryUse& peak() const { return peak_; }
  /// Sets the peak to the bytes in use now.
  void forget_peak() { peak_ = now_; }
  /// Bytes in use now.
  int64_t used_bytes() const { return now_.total(); }
  /// data() is the address of the arena's block (null on kMeta), capacity_bytes() its size.
  void* data() const { return memory_; }
  int64_t capacity_bytes() const { return capacity_.total(); }
  const Device& device() const { return device_; }

  /// Call open_pending() when a communication that reads or writes arena memory begins, and close_pending()
  /// when it is done. A communication that begins inside a Frame must be done before the Frame ends
  /// (checked).
  void open_pending() { ++pending_; }
  void close_pending() { --pending_; }

 private:
  friend class Frame;
  Device device_;
  MemoryLedger* ledger_;
  const MemorySource* source_;
  MemoryUse capacity_, now_, peak_;
  void* memory_ = nullptr;
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
  int pending_ = 0;  ///< number of communications that were open when the frame began
};

}  // namespace ripstop
