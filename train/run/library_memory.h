#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/device/device.h"

namespace ripstop {

struct GpuRoom {
  int64_t free_before = 0;  ///< free bytes before the libraries allocated memory
  int64_t free_now = 0;
  int64_t run_bytes = 0;   ///< planned bytes before the run allocates, then the ledger's bytes
  int64_t kept_bytes = 0;  ///< bytes reserved for libraries (library_bytes)
};

/// The reason why the run does not fit; nullopt if it fits. Assumes that the run has allocated nothing, and
/// that libraries will use all of their reserve.
std::optional<std::string> lack_of_room(const GpuRoom& room);

/// A warning if libraries use more than their reserve; else nullopt. Assumes `run_bytes` are allocated.
std::optional<std::string> libraries_beyond_bound(const GpuRoom& room);

/// Checks that the GPU memory outside the plan suffices for CUDA's libraries. Does nothing on a CPU.
class LibraryMemory {
 public:
  /// Measures the free bytes. Construct it before communicators and handles, which allocate.
  explicit LibraryMemory(const Device& device);
  /// Throws Error(kResources) if the run's `planned_bytes`, not yet allocated, do not fit.
  void check_room(int64_t planned_bytes) const;
  /// libraries_beyond_bound for the memory that is free now. `taken_bytes`: allocated by the run.
  std::optional<std::string> beyond_bound(int64_t taken_bytes) const;

 private:
  GpuRoom room(int64_t run_bytes) const;  ///< all 0 on a CPU
  Device device_;
  int64_t free_before_ = 0;
};

}  // namespace ripstop
