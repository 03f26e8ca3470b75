// LibraryMemory: the GPU memory that CUDA's libraries allocate outside the plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/device/device.h"

namespace ripstop {

/// The memory of a GPU, in bytes.
struct GpuRoom {
  int64_t free_before = 0;  ///< free bytes before the libraries allocated any
  int64_t free_now = 0;     ///< free bytes at the measurement
  int64_t run_bytes = 0;    ///< bytes in the run's ledger, or in its plan
  int64_t kept_bytes = 0;   ///< bytes reserved for libraries (library_bytes)
};

/// The reason why the run does not fit; nullopt if it fits. Assumes that `run_bytes` are still to be
/// allocated, and that libraries may use their whole reserve.
std::optional<std::string> lack_of_room(const GpuRoom& room);

/// A warning if the libraries use more than their reserve; else nullopt. Assumes that `run_bytes` are
/// allocated.
std::optional<std::string> libraries_beyond_bound(const GpuRoom& room);

/// Measures the free memory of a GPU. On a CPU the checks do nothing.
class LibraryMemory {
 public:
  /// Remembers the free bytes now. Construct it before communicators and handles, which allocate.
  explicit LibraryMemory(const Device& device);
  /// Throws Error(kResources) if the run's `planned_bytes`, not yet allocated, do not fit any more.
  void check_room(int64_t planned_bytes) const;
  /// The result of libraries_beyond_bound for the free memory now, if the run has allocated `taken_bytes`.
  std::optional<std::string> beyond_bound(int64_t taken_bytes) const;

 private:
  std::optional<GpuRoom> room(int64_t run_bytes) const;
  Device device_;
  int64_t free_before_ = 0;
};

}  // namespace ripstop
