#include "tests/emulated_device/cudnn_test_queue.h"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {
namespace {

std::deque<Work>& queue() {
  static std::deque<Work> instance;
  return instance;
}
std::map<const std::byte*, int64_t>& blocks() {
  static std::map<const std::byte*, int64_t> instance;
  return instance;
}

}  // namespace

void submit(cudaStream_t, std::string, Work work) {
  queue().push_back(std::move(work));
}

void refuse(const std::string& call, const std::string& why) {
  throw Refused(call + ": " + why);
}

bool on_device(const void* data, int64_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  const auto next = blocks().upper_bound(begin);
  if (next == blocks().begin()) return false;
  const auto& [first, size] = *std::prev(next);
  return begin + bytes <= first + size;
}

DeviceBlock::DeviceBlock(int64_t bytes, int fill) {
  constexpr size_t kAlignment = 256;
  const size_t size = (static_cast<size_t>(bytes) + kAlignment) / kAlignment * kAlignment;
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
  std::memset(data_, fill, size);
  blocks()[data_] = bytes;
}
DeviceBlock::DeviceBlock(DeviceBlock&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
DeviceBlock::~DeviceBlock() {
  if (data_ == nullptr) return;
  blocks().erase(data_);
  std::free(data_);
}

void run_submitted() {
  while (!queue().empty()) {
    Work work = std::move(queue().front());
    queue().pop_front();
    while (!work()) {
    }
  }
}
size_t submitted() {
  return queue().size();
}

}  // namespace ripstop::emulated

extern "C" cudaError_t cudaDeviceSynchronize() {
  ripstop::emulated::run_submitted();
  return cudaSuccess;
}
