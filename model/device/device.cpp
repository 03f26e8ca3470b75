#include "model/device/device.h"

#include "model/device/range_recorder.h"

namespace ripstop {

std::string to_string(const Device& device) {
  if (device.kind == DeviceKind::kCuda) return fmt::format("cuda:{}", device.index);
  return device.kind == DeviceKind::kCpu ? "cpu" : "meta";
}

const char* to_string(MemoryCategory category) {
  static constexpr std::array<const char*, kMemoryCategories.size()> kNames = {
      "weights", "gradients", "optimizer", "activations", "communication", "workspace", "snapshot"};
  return kNames[static_cast<size_t>(category)];
}

MemoryUse& MemoryUse::operator+=(const MemoryUse& other) {
  for (size_t c = 0; c < bytes.size(); ++c) bytes[c] += other.bytes[c];
  return *this;
}

void MemoryLedger::add(const MemoryUse& use) {
  now_ += use;
  // All categories of the peak belong to one moment and add up to its total.
  if (now_.total() > peak_.total()) peak_ = now_;
}

void MemoryLedger::remove(const MemoryUse& use) {
  for (size_t c = 0; c < use.bytes.size(); ++c) now_.bytes[c] -= use.bytes[c];
}

const DeviceTable& device_table(DeviceKind kind) {
  if (kind == DeviceKind::kMeta) return meta_device();
  return kind == DeviceKind::kCpu ? cpu_device() : cuda_device();
}

const MemorySource* host_memory(const Device& device) {
  return device.kind == DeviceKind::kCuda ? &cuda_host_memory() : nullptr;
}

namespace {

// A negative size would become a huge unsigned one.
MemoryUse use_of(MemoryCategory category, int64_t bytes) {
  RIPSTOP_CHECK(bytes >= 0, "a buffer of {} bytes", bytes);
  MemoryUse use;
  use[category] = bytes;
  return use;
}

// Returns a text like "weights" or "weights and gradients".
std::string purpose(const MemoryUse& use) {
  std::string text;
  for (const MemoryCategory category : kMemoryCategories)
    if (use[category] > 0) text.append(text.empty() ? "" : " and ").append(to_string(category));
  return text;
}

}  // namespace

Buffer::Buffer(const Device& device, MemoryLedger& ledger, MemoryCategory category, int64_t bytes)
    : Buffer(device, ledger, use_of(category, bytes)) {}

Buffer::Buffer(const Device& device, MemoryLedger& ledger, const MemoryUse& use, const MemorySource* source)
    // A plan on kMeta must not ask the source, whose library may not be there.
    : device_(device), source_(device.kind == DeviceKind::kMeta ? nullptr : source), use_(use) {
  data_ = source_ != nullptr ? source_->allocate(device, bytes())
                             : device_table(device.kind).allocate(device, bytes());
  if (data_ == nullptr)
    fail(ExitCode::kResources, "{} cannot allocate {} bytes for {}", to_string(device), bytes(),
         purpose(use));
  ledger_ = &ledger;
  ledger.add(use_);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  release();
  device_ = other.device_;
  ledger_ = std::exchange(other.ledger_, nullptr);
  source_ = other.source_;
  use_ = std::exchange(other.use_, {});
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

void Buffer::release() noexcept {
  if (ledger_ == nullptr) return;
  if (source_ != nullptr) {
    source_->release(device_, data_);
  } else {
    device_table(device_.kind).release(device_, data_);
  }
  ledger_->remove(use_);
  ledger_ = nullptr;
}

Stream::Stream(const Device& device, bool urgent, KernelObserver* observer)
    : device_(device), observer_(observer), handle_(device_table(device.kind).make_stream(device, urgent)) {}
Stream::~Stream() {
  device_table(device_.kind).end_stream(device_, handle_);
}
void Stream::synchronize() const {
  device_table(device_.kind).synchronize(device_, handle_);
}

std::vector<std::string> Stream::take_notes() const {
  return device_table(device_.kind).take_notes(handle_);
}

void Stream::wait_for(const Stream& other) const {
  // The event may be destroyed right away, because CUDA keeps the event until the wait is over.
  Event now(other.device());
  now.record(other);
  now.make_wait(*this);
}

Event::Event(const Device& device) : device_(device), handle_(device_table(device.kind).make_event(device)) {}
Event::~Event() {
  device_table(device_.kind).end_event(device_, handle_);
}
void Event::record(const Stream& stream) {
  device_table(device_.kind).record(device_, handle_, stream.handle());
}
void Event::make_wait(const Stream& stream) const {
  device_table(device_.kind).make_wait(device_, handle_, stream.handle());
}

ProfilerRange::ProfilerRange(const Stream& stream, const char* name)
    : kind_(stream.device().kind), recorder_(stream.recorder()) {
  device_table(kind_).open_range(name);
  if (recorder_ != nullptr) recorder_->open(name);
}
ProfilerRange::~ProfilerRange() {
  if (recorder_ != nullptr) recorder_->close();
  device_table(kind_).close_range();
}

void copy_bytes(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes > 0) device_table(stream.device().kind).copy(stream, to, from, bytes);
}

}  // namespace ripstop
