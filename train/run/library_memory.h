// What CUDA's libraries take of a GPU beside the plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "model/device/device.h"

namespace ripstop {

/// Free bytes of a GPU before the libraries took theirs and now, and what a run takes and keeps for them.
struct GpuRoom {
  int64_t free_before = 0, free_now = 0;
  int64_t run_bytes = 0;   ///< that the run counts itself: still to take, or taken
  int64_t kept_bytes = 0;  ///< for libraries, see library_bytes
};

/// The reason why the rest of a run does not fit: `run_bytes` must still be taken, and the libraries may come
/// to take all that is kept for them. nullopt if it fits.
std::optional<std::string> lack_of_room(const GpuRoom& room);

/// That the libraries have taken more than is kept for them, where the run has taken `run_bytes` since
/// `free_before`. nullopt if they have not.
std::optional<std::string> libraries_beyond_bound(const GpuRoom& room);

/// Measures these for a device. On a device without libraries' memory nothing is measured, and all fits.
class LibraryMemory {
 public:
  /// Remembers what is free. Make it before communicators and handles.
  explicit LibraryMemory(const Device& device);
  /// Throws Error(kResources) if the run's `planned_bytes`, which are not taken yet, do not fit any more.
  void check_room(int64_t planned_bytes) const;
  /// libraries_beyond_bound now, after the run has taken `taken_bytes`.
  std::optional<std::string> beyond_bound(int64_t taken_bytes) const;

 private:
  GpuRoom room(int64_t run_bytes) const;
  Device device_;
  int64_t free_before_ = 0;
};

}  // namespace ripstop
