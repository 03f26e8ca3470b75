// LibraryMemory: the GPU memory that CUDA's libraries allocate outside the plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/device/device.h"

namespace ripstop {

/// The memory of a GPU, in bytes.
struct GpuRoom {
  int64_t free_before = 0;  ///< before the libraries allocated any
  int64_t free_now = 0;
  int64_t run_bytes = 0;   ///< in the run's ledger, or its plan
  int64_t kept_bytes = 0;  ///< reserved for libraries (library_bytes)
};

/// The reason why the run does not fit; else nullopt. `run_bytes` are still to be allocated, and libraries
/// may use their whole reserve.
std::optional<std::string> lack_of_room(const GpuRoom& room);

/// A warning if the libraries use more than their reserve; else nullopt. `run_bytes` are allocated.
std::optional<std::string> libraries_beyond_bound(const GpuRoom& room);

/// Measures a GPU. On a CPU the checks do nothing.
class LibraryMemory {
 public:
  /// Remembers the free bytes. Make it before communicators and handles.
  explicit LibraryMemory(const Device& device);
  /// Throws Error(kResources) if the run's `planned_bytes`, not yet allocated, do not fit any more.
  void check_room(int64_t planned_bytes) const;
  /// libraries_beyond_bound now, with `taken_bytes` allocated by the run.
  std::optional<std::string> beyond_bound(int64_t taken_bytes) const;

 private:
  std::optional<GpuRoom> room(int64_t run_bytes) const;
  Device device_;
  int64_t free_before_ = 0;
};

}  // namespace ripstop
