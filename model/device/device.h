// Where tensors live and in what order work on them happens: devices, memory, streams, events.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

enum class DeviceKind : uint8_t { kCpu, kCuda, kMeta };

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
std::string to_string(const Device& device);

/// What memory is for, as `plan --json` lists it.
enum class MemoryCategory : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspace,
};
inline constexpr int kMemoryCategories = 6;
std::string_view to_string(MemoryCategory category);

/// Bytes per MemoryCategory.
struct MemoryUse {
  std::array<int64_t, kMemoryCategories> bytes{};

  int64_t& operator[](MemoryCategory c) { return bytes[static_cast<size_t>(c)]; }
  int64_t operator[](MemoryCategory c) const { return bytes[static_cast<size_t>(c)]; }
  int64_t total() const;
  MemoryUse& operator+=(const MemoryUse& other);
  bool operator==(const MemoryUse&) const = default;
};

/// What one rank allocates, by category, while Buffers come and go. One per rank, owned by the Trainer or the
/// planner and handed to whoever makes Buffers; outlives them. Single-threaded.
class MemoryLedger {
 public:
  void add(MemoryCategory category, int64_t bytes);
  void remove(MemoryCategory category, int64_t bytes);
  void add(const MemoryUse& use);
  void remove(const MemoryUse& use);
  /// What is allocated now.
  const MemoryUse& now() const { return now_; }
  /// What was allocated when the total was largest.
  const MemoryUse& peak() const { return peak_; }

 private:
  MemoryUse now_, peak_;
};

/// Who gives and takes memory of a device where that is not the device itself, with the contract of the
/// DeviceTable's functions of these names. Not asked on kMeta.
struct MemorySource {
  void* (*allocate)(const Device&, int64_t bytes);
  void (*release)(const Device&, void*) noexcept;
};

/// Owns zeroed bytes on a device, aligned to 256 bytes. On kMeta it owns no memory, and `data()` is an
/// address that must not be read. Moves, does not copy. Throws Error(kResources), naming the bytes asked for,
/// where the device has too little.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Device& device, MemoryLedger& ledger, MemoryCategory category, int64_t bytes);
  /// Of so many bytes of each category, from `source`; null: from the device.
  Buffer(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
         const MemorySource* source = nullptr);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return use_.total(); }
  const Device& device() const { return device_; }

 private:
  void release() noexcept;
  Device device_;
  MemoryLedger* ledger_ = nullptr;
  const MemorySource* source_ = nullptr;
  MemoryUse use_;
  void* data_ = nullptr;
};

/// Work on one device in program order. CPU and meta: work is done when the call returns, so `synchronize` is
/// empty.
class Stream {
 public:
  /// `urgent`: where the device has little room, work of this stream comes before that of streams that are
  /// not.
  explicit Stream(const Device& device, bool urgent = false);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const { return device_; }
  /// Blocks the host until all work given to this stream is done.
  void synchronize() const;
  /// What people should know of the work so far: where the back end takes a slower way than it could, and
  /// why. Each text is given once in the life of the stream. CPU and meta: nothing.
  std::vector<std::string> take_notes() const;
  /// Work given to this stream after this call starts once all that was given to `other` before is done.
  /// Returns at once.
  void wait_for(const Stream& other) const;
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
  void* (*allocate)(const Device&, int64_t bytes);  ///< zeroed; null where there is too little
  void (*release)(const Device&, void*) noexcept;
  void (*copy)(const Stream&, void* to, const void* from, int64_t bytes);
  void* (*make_stream)(const Device&, bool urgent);
  void (*end_stream)(const Device&, void*) noexcept;
  void (*synchronize)(const Device&, void* stream);
  std::vector<std::string> (*take_notes)(void* stream);
  void* (*make_event)(const Device&);
  void (*end_event)(const Device&, void*) noexcept;
  void (*record)(const Device&, void* event, void* stream);
  void (*make_wait)(const Device&, void* event, void* stream);
  void (*open_range)(const char* name);
  void (*close_range)() noexcept;
  void (*start_profiler)(const Device&);
  void (*stop_profiler)(const Device&) noexcept;
};
const DeviceTable& cpu_device();
const DeviceTable& cuda_device();  ///< throws Error(kResources) where CUDA is not built in
const DeviceTable& meta_device();
const DeviceTable& device_table(DeviceKind kind);

/// Copies `bytes` bytes in stream order; either side may be host memory. What lies on the host has been read
/// when this returns, and is written once the stream has been synchronized. Nothing happens on a meta stream.
void copy_bytes(const Stream& stream, void* to, const void* from, int64_t bytes);

/// A named stretch of what the host does, as profilers show it beside the kernels that it launches: an NVTX
/// range on kCuda, nothing elsewhere. Ranges nest; each ends with its scope.
class ProfilerRange {
 public:
  ProfilerRange(const Device& device, const char* name) : kind_(device.kind) {
    device_table(kind_).open_range(name);
  }
  ProfilerRange(const Device& device, const std::string& name) : ProfilerRange(device, name.c_str()) {}
  ~ProfilerRange() { device_table(kind_).close_range(); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  DeviceKind kind_;
};

/// While it lives a profiler that was told to wait for the program (`nsys profile
/// --capture-range=cudaProfilerApi --capture-range-end=stop`, `ncu --profile-from-start off`) collects what
/// this process gives to the device. Work given before must be done, and what is to be seen must be done when
/// it ends; where an exception ends it, the profiler collects on. Nothing but kCuda has such a profiler.
class ProfiledStretch {
 public:
  explicit ProfiledStretch(const Device& device) : device_(device) {
    device_table(device.kind).start_profiler(device);
  }
  ~ProfiledStretch() { device_table(device_.kind).stop_profiler(device_); }
  ProfiledStretch(const ProfiledStretch&) = delete;
  ProfiledStretch& operator=(const ProfiledStretch&) = delete;

 private:
  Device device_;
};

}  // namespace ripstop
