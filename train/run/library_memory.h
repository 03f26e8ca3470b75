// LibraryMemory: the memory of a GPU that CUDA's libraries take beside the plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/device/device.h"

namespace ripstop {

/// Bytes of a GPU: free before the libraries took theirs and free now, counted by the run itself (still to
/// take, or taken), and kept for libraries (library_bytes).
struct GpuRoom {
  int64_t free_before = 0, free_now = 0, run_bytes = 0;
  int64_t kept_bytes = 0;
};

/// Why the run does not fit, or nullopt. Assumes that `run_bytes` are still to be allocated and that
/// libraries use their whole reserve.
std::optional<std::string> lack_of_room(const GpuRoom& room);

/// The warning that the libraries have taken more than their reserve, or nullopt. Assumes that `run_bytes`
/// are allocated.
std::optional<std::string> libraries_beyond_bound(const GpuRoom& room);

/// Measures a device. A device without libraries' memory has room for all.
class LibraryMemory {
 public:
  /// Remembers the free bytes. Make it before communicators and handles.
  explicit LibraryMemory(const Device& device);
  /// Throws Error(kResources) if the run's `planned_bytes`, which are not taken yet, do not fit any more.
  void check_room(int64_t planned_bytes) const;
  /// libraries_beyond_bound now, after the run has taken `taken_bytes`.
  std::optional<std::string> beyond_bound(int64_t taken_bytes) const;

 private:
  std::optional<GpuRoom> room(int64_t run_bytes) const;
  Device device_;
  int64_t free_before_ = 0;
};

}  // namespace ripstop
