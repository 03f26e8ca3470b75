#include "train/run/library_memory.h"

#include <algorithm>

#include "model/device/cuda_machine.h"
#include "train/machine/device_choice.h"
#include "train/report/human_text.h"

namespace ripstop {

std::optional<std::string> lack_of_room(const GpuRoom& room) {
  const int64_t taken = room.free_before - room.free_now;
  const int64_t still_kept = std::max<int64_t>(room.kept_bytes - taken, 0);
  if (room.run_bytes + still_kept <= room.free_now) return std::nullopt;
  return fmt::format(
      "{} are free after CUDA's libraries (and other programs) took {}; the run needs {}, and {} stay for "
      "kernels that are loaded later",
      bytes_text(room.free_now), bytes_text(std::max<int64_t>(taken, 0)), bytes_text(room.run_bytes),
      bytes_text(still_kept));
}

std::optional<std::string> libraries_beyond_bound(const GpuRoom& room) {
  const int64_t taken = room.free_before - room.free_now - room.run_bytes;
  if (taken <= room.kept_bytes) return std::nullopt;
  return fmt::format(
      "CUDA's libraries (and other programs) took {} of the GPU beside the plan, which keeps {} for them: a "
      "larger micro-batch may run out of memory",
      bytes_text(taken), bytes_text(room.kept_bytes));
}

LibraryMemory::LibraryMemory(const Device& device) : device_(device) {
  if (device.kind == DeviceKind::kCuda) free_before_ = cuda_free_bytes(device.index);
}

GpuRoom LibraryMemory::room(int64_t run_bytes) const {
  if (device_.kind != DeviceKind::kCuda) return {};
  return {free_before_, cuda_free_bytes(device_.index), run_bytes, library_bytes(device_.kind)};
}

void LibraryMemory::check_room(int64_t planned_bytes) const {
  if (const auto why = lack_of_room(room(planned_bytes)))
    throw Error(ExitCode::kResources, fmt::format("{}: {}", to_string(device_), *why),
                "take a smaller train.micro_batch_sequences or train.recompute = \"full\"");
}

std::optional<std::string> LibraryMemory::beyond_bound(int64_t taken_bytes) const {
  return libraries_beyond_bound(room(taken_bytes));
}

}  // namespace ripstop
