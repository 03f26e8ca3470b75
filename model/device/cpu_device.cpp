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
void release(const Device&, void* data) noexcept {
  std::free(data);
}
void copy(const Stream&, void* to, const void* from, int64_t bytes) {
  std::memmove(to, from, static_cast<size_t>(bytes));
}
void* make_nothing(const Device&) {
  return nullptr;
}
void* make_no_stream(const Device&, bool) {
  return nullptr;
}
void end_nothing(const Device&, void*) noexcept {}
void synchronize(const Device&, void*) {}
std::vector<std::string> no_notes(void*) {
  return {};
}
void ordered_already(const Device&, void*, void*) {}
void open_no_range(const char*) {}
void close_no_range() noexcept {}
void start_nothing(const Device&) {}
void stop_nothing(const Device&) noexcept {}

// An address that is never read: not null, since null means "no tensor".
void* allocate_nothing(const Device&, int64_t) {
  return reinterpret_cast<void*>(kMemoryAlignment);
}
void release_nothing(const Device&, void*) noexcept {}
void copy_nothing(const Stream&, void*, const void*, int64_t) {}

constexpr DeviceTable kCpuTable{.allocate = allocate,
                                .release = release,
                                .copy = copy,
                                .make_stream = make_no_stream,
                                .end_stream = end_nothing,
                                .synchronize = synchronize,
                                .take_notes = no_notes,
                                .make_event = make_nothing,
                                .end_event = end_nothing,
                                .record = ordered_already,
                                .make_wait = ordered_already,
                                .open_range = open_no_range,
                                .close_range = close_no_range,
                                .start_profiler = start_nothing,
                                .stop_profiler = stop_nothing};

constexpr DeviceTable kMetaTable = [] {
  DeviceTable table = kCpuTable;
  table.allocate = allocate_nothing;
  table.release = release_nothing;
  table.copy = copy_nothing;
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
