// Where tensors live and in what order work on them happens: devices, memory, streams, events.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/error.h"

namespace ripstop {

enum class DeviceKind : std::uint8_t { kCpu, kCuda, kMeta };

/// A place for tensors. On `kMeta` nothing is stored and nothing computed, only counted; `planned` is then
/// the kind whose workspaces are counted (on a real device it equals `kind`). `deterministic`: on kCuda,
/// every sum has a fixed order, at the price of time and scratch; the CPU's have always.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  DeviceKind planned = DeviceKind::kCpu;
  int index = 0;
  bool deterministic = false;

  static Device cpu() { return {DeviceKind::kCpu, DeviceKind::kCpu}; }
  static Device cuda(int index) { return {DeviceKind::kCuda, DeviceKind::kCuda, index}; }
  static Device meta(DeviceKind planned) { return {DeviceKind::kMeta, planned}; }
  bool operator==(const Device&) const = default;
};

/// "cpu", "cuda:0", "meta".
std::string device_name(const Device& device);

/// What memory is for, as `plan --json` lists it.
enum class MemoryCategory : std::uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspace,
};
inline constexpr int kMemoryCategories = 6;
const char* memory_category_name(MemoryCategory category);

/// Bytes per MemoryCategory.
struct MemoryUse {
  std::array<std::int64_t, kMemoryCategories> bytes{};

  std::int64_t& operator[](MemoryCategory c) { return bytes[static_cast<std::size_t>(c)]; }
  std::int64_t operator[](MemoryCategory c) const { return bytes[static_cast<std::size_t>(c)]; }
  std::int64_t total() const;
  MemoryUse& operator+=(const MemoryUse& other);
  bool operator==(const MemoryUse&) const = default;
};

/// What one rank allocates, by category, while Buffers come and go. One per rank, owned by the Trainer or the
/// planner and handed to whoever makes Buffers; outlives them. Single-threaded.
class MemoryLedger {
 public:
  void add(MemoryCategory category, std::int64_t bytes);
  void remove(MemoryCategory category, std::int64_t bytes);
  /// What is allocated now.
  const MemoryUse& now() const { return now_; }
  /// What was allocated when the total was largest.
  const MemoryUse& peak() const { return peak_; }

 private:
  MemoryUse now_, peak_;
};

/// Owns `bytes` zeroed bytes on a device, aligned to 256 bytes. On kMeta it owns no memory, and `data()` is
/// an address that must not be read. Moves, does not copy. Throws Error(kResources), naming the bytes asked
/// for, where the device has too little.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Device& device, MemoryLedger& ledger, MemoryCategory category, std::int64_t bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  const Device& device() const { return device_; }

 private:
  void release() noexcept;
  Device device_;
  MemoryLedger* ledger_ = nullptr;
  MemoryCategory category_ = MemoryCategory::kWorkspace;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Work on one device in program order. CPU and meta: work is done when the call returns, so `synchronize` is
/// empty.
class Stream {
 public:
  explicit Stream(const Device& device);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const { return device_; }
  /// Blocks the host until all work given to this stream is done.
  void synchronize() const;
  /// What people should know of the work so far: where the back end takes a slower way than it could, and
  /// why. Each text is given once in the life of the stream. CPU and meta: nothing.
  std::vector<std::string> take_notes() const;
  /// The back end's own stream (a CudaStream, see cuda_device.h); null on CPU and meta.
  void* handle() const { return handle_; }

 private:
  Device device_;
  void* handle_ = nullptr;
};

/// A point in a stream that another stream can wait for. CPU and meta: always reached.
class Event {
 public:
  explicit Event(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Marks the work given to `stream` so far. A later record replaces an earlier one.
  void record(const Stream& stream);
  /// Work given to `stream` after this call starts once the recorded point is reached. Returns at once.
  void make_wait(const Stream& stream) const;

 private:
  Device device_;
  void* handle_ = nullptr;
};

/// What a back end offers below tensors; one instance each in cpu_device.cpp and cuda_device.cpp (or
/// no_cuda_device.cpp).
struct DeviceTable {
  void* (*allocate)(const Device&, std::int64_t bytes);  ///< zeroed; null where there is too little
  void (*release)(const Device&, void*) noexcept;
  void (*copy)(const Stream&, void* to, const void* from, std::int64_t bytes);
  void* (*make_stream)(const Device&);
  void (*end_stream)(const Device&, void*) noexcept;
  void (*synchronize)(const Device&, void* stream);
  std::vector<std::string> (*take_notes)(void* stream);
  void* (*make_event)(const Device&);
  void (*end_event)(const Device&, void*) noexcept;
  void (*record)(const Device&, void* event, void* stream);
  void (*make_wait)(const Device&, void* event, void* stream);
};
const DeviceTable& cpu_device();
const DeviceTable& cuda_device();  ///< throws Error(kResources) where CUDA is not built in
const DeviceTable& meta_device();
const DeviceTable& device_table(DeviceKind kind);

/// Copies `bytes` bytes in stream order; either side may be host memory. What lies on the host has been read
/// when this returns, and is written once the stream has been synchronized. Nothing happens on a meta stream.
void copy_bytes(const Stream& stream, void* to, const void* from, std::int64_t bytes);

}  // namespace ripstop
