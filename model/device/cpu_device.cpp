// The device tables of the CPU and of the meta device, which has no memory.
#include <cstdlib>
#include <cstring>

#include "model/device/device.h"

namespace ripstop {
namespace {

void* allocate(const Device&, int64_t bytes) {
  // A multiple of the alignment, as aligned_alloc needs, and above 0, so that 0 bytes get an address, too.
  const int64_t whole = (bytes / kMemoryAlignment + 1) * kMemoryAlignment;
  void* data = std::aligned_alloc(kMemoryAlignment, static_cast<size_t>(whole));
  if (data != nullptr) std::memset(data, 0, static_cast<size_t>(whole));
  return data;
}

constexpr DeviceTable kCpuTable{
    .allocate = allocate,
    .release = [](const Device&, void* data) noexcept { std::free(data); },
    .copy = [](const Stream&, void* to, const void* from,
               int64_t bytes) { std::memmove(to, from, static_cast<size_t>(bytes)); },
    .make_stream = [](const Device&, bool) -> void* { return nullptr; },
    .end_stream = [](const Device&, void*) noexcept {},
    .synchronize = [](const Device&, void*) {},
    .take_notes = [](void*) { return std::vector<std::string>(); },
    .make_event = [](const Device&) -> void* { return nullptr; },
    .end_event = [](const Device&, void*) noexcept {},
    // Work on the CPU is done in order already.
    .record = [](const Device&, void*, void*) {},
    .make_wait = [](const Device&, void*, void*) {},
    .open_range = [](const char*) {},
    .close_range = []() noexcept {},
    .start_profiler = [](const Device&) {},
    .stop_profiler = [](const Device&) noexcept {}};

constexpr DeviceTable kMetaTable = [] {
  DeviceTable table = kCpuTable;
  // An address that is never read: not null, since null means "no tensor".
  table.allocate = [](const Device&, int64_t) { return reinterpret_cast<void*>(kMemoryAlignment); };
  table.release = [](const Device&, void*) noexcept {};
  table.copy = [](const Stream&, void*, const void*, int64_t) {};
  return table;
}();

}  // namespace

const DeviceTable& cpu_device() {
  return kCpuTable;
}

const DeviceTable& meta_device() {
  return kMetaTable;
}

}  // namespace ripstop
