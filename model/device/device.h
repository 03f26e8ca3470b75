#pragma once
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "model/core/error.h"

namespace ripstop {

class RangeRecorder;

enum class DeviceKind : uint8_t { kCpu, kCuda, kMeta };

/// Alignment in bytes of device memory and of tensors in an arena: the alignment of cudaMalloc, enough for
/// the widest vector accesses.
inline constexpr int64_t kMemoryAlignment = 256;

/// A place for tensors. kMeta stores and computes nothing; it only counts memory. `planned` is the kind whose
/// workspaces are counted; on a real device it equals `kind`. `deterministic`: sums on kCuda have a fixed
/// order, which costs time and workspace; no effect on kCpu.
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

/// Returns the name of the device: "cpu", "meta", or "cuda:0" with the index of the GPU.
std::string to_string(const Device& device);

/// The purposes of memory that `plan --json` lists.
enum class MemoryCategory : uint8_t {
  kWeights,
  kGradients,
  kOptimizer,
  kActivations,
  kCommunication,
  kWorkspace,
  kSnapshot,  ///< copies in host memory that a save writes while training goes on
};
inline constexpr std::array<MemoryCategory, 7> kMemoryCategories{
    MemoryCategory::kWeights,     MemoryCategory::kGradients,     MemoryCategory::kOptimizer,
    MemoryCategory::kActivations, MemoryCategory::kCommunication, MemoryCategory::kWorkspace,
    MemoryCategory::kSnapshot};
const char* to_string(MemoryCategory category);

struct MemoryUse {
  std::array<int64_t, kMemoryCategories.size()> bytes{};

  int64_t& operator[](MemoryCategory c) { return bytes[static_cast<size_t>(c)]; }
  int64_t operator[](MemoryCategory c) const { return bytes[static_cast<size_t>(c)]; }
  int64_t total() const { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }
  MemoryUse& operator+=(const MemoryUse& other);
  bool operator==(const MemoryUse&) const = default;
};

/// Counts the bytes that its Buffers have allocated. Must outlive these Buffers. Not thread-safe.
class MemoryLedger {
 public:
  void add(const MemoryUse& use);
  void remove(const MemoryUse& use);
  const MemoryUse& now() const { return now_; }
  /// Bytes by category, at the moment of the largest total.
  const MemoryUse& peak() const { return peak_; }

 private:
  MemoryUse now_, peak_;
};

/// An allocator that replaces the device's own: NCCL's, or host_memory(). The functions have the contracts of
/// DeviceTable, except that allocate() of host_memory() does not zero. Not used on kMeta.
struct MemorySource {
  void* (*allocate)(const Device&, int64_t bytes);
  void (*release)(const Device&, void*) noexcept;
};

/// The source of pinned host memory, which a GPU reads and writes without the host. Null unless `device` is
/// a GPU.
const MemorySource* host_memory(const Device& device);

/// Owns bytes on a device, aligned to 256 bytes, and zeroed unless they come from host_memory(). On kMeta
/// owns no memory, and `data()` must not be read. The constructors throw Error(kResources), with the number
/// of bytes, if there is too little memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Device& device, MemoryLedger& ledger, MemoryCategory category, int64_t bytes);
  /// `source`: null for the device's own memory.
  Buffer(const Device& device, MemoryLedger& ledger, const MemoryUse& use,
         const MemorySource* source = nullptr);
  ~Buffer() { release(); }
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  int64_t bytes() const { return use_.total(); }
  const Device& device() const { return device_; }

 private:
  void release() noexcept;
  Device device_;
  MemoryLedger* ledger_ = nullptr;  ///< null if the buffer owns nothing
  const MemorySource* source_ = nullptr;
  MemoryUse use_;
  void* data_ = nullptr;
};

class KernelObserver;

/// A queue of work on one device, done in order. On the CPU and on meta, work is done when the call returns.
class Stream {
 public:
  /// `urgent`: a busy device runs this stream's work first. `observer` (model/ops/kernel_work.h) gets
  /// each kernel call of this stream, may run it, and must outlive the stream. Null: none.
  explicit Stream(const Device& device, bool urgent = false, KernelObserver* observer = nullptr);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const { return device_; }
  KernelObserver* observer() const { return observer_; }
  /// Blocks the host until all work given to this stream is done.
  void synchronize() const;
  /// Notes for the user on the work so far, such as an operation that took a slow fallback, and why. Each
  /// text appears once in the life of the stream. No notes on CPU and meta.
  std::vector<std::string> take_notes() const;
  /// Makes later work of this stream start only after all earlier work of `other`. Returns at once.
  void wait_for(const Stream& other) const;
  /// From now on, `recorder` also records the ProfilerRanges of this stream; null ends that.
  void record_into(RangeRecorder* recorder) { recorder_ = recorder; }
  RangeRecorder* recorder() const { return recorder_; }
  /// A CudaStream (cuda_device.h); null on CPU and meta.
  void* handle() const { return handle_; }

 private:
  Device device_;
  KernelObserver* observer_ = nullptr;
  void* handle_ = nullptr;
  RangeRecorder* recorder_ = nullptr;
};

/// A point in a stream for which another stream can wait. On CPU and meta it is always reached.
class Event {
 public:
  explicit Event(const Device& device);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Marks the end of all earlier work of `stream`. Replaces an earlier record.
  void record(const Stream& stream);
  /// Makes later work of `stream` start only after the recorded point. Returns at once.
  void make_wait(const Stream& stream) const;

 private:
  Device device_;
  void* handle_ = nullptr;
};

/// The functions of a kind of device for memory, streams, events and profilers.
struct DeviceTable {
  void* (*allocate)(const Device&, int64_t bytes);  ///< zeroed; null if there is too little memory
  void (*release)(const Device&, void*) noexcept;
  void (*copy)(const Stream&, void* to, const void* from, int64_t bytes);
  void* (*make_stream)(const Device&, bool urgent);  ///< returns Stream::handle()
  void (*end_stream)(const Device&, void*) noexcept;
  void (*synchronize)(const Device&, void* stream);
  std::vector<std::string> (*take_notes)(void* stream);  ///< see Stream::take_notes
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
const DeviceTable& cuda_device();  ///< throws Error(kResources) without the CUDA back end
const DeviceTable& meta_device();
const DeviceTable& device_table(DeviceKind kind);
const MemorySource& cuda_host_memory();  ///< throws Error(kResources) without the CUDA back end

/// Copies in stream order. `from`, `to` or both may be host memory. On return, host memory at `from` has been
/// read, and host memory at `to` has been written, except memory from host_memory(), which is written when
/// the stream has been synchronized. Does nothing on a meta stream.
void copy_bytes(const Stream& stream, void* to, const void* from, int64_t bytes);

/// A named range of host time. Profilers of GPUs show it beside the kernels that the host launched in it
/// (NVTX), and the stream's recorder, if it is on, records it. Does nothing else. Ranges nest.
class ProfilerRange {
 public:
  ProfilerRange(const Stream& stream, const char* name);
  ProfilerRange(const Stream& stream, const std::string& name) : ProfilerRange(stream, name.c_str()) {}
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  DeviceKind kind_;
  RangeRecorder* recorder_;
};

/// A scope for profilers. A profiler that was started in one of these ways collects only work in the scope:
///   nsys profile --capture-range=cudaProfilerApi --capture-range-end=stop
///   ncu --profile-from-start off
/// Synchronize the stream before the construction and before the destruction, so that exactly the work
/// between them is collected. If an exception ends the scope, the profiler continues. Does nothing except on
/// kCuda.
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
