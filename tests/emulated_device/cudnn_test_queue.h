// A small stand-in of work_queue.h for the tests of cuDNN's stand-ins: work runs when the test says so, and a
// refusal is an exception.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace ripstop::emulated {

/// The error that refuse() throws here.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A block of memory that on_device() knows as long as it lives, aligned to 256 bytes.
class DeviceBlock {
 public:
  explicit DeviceBlock(int64_t bytes, int fill = 0xff);
  ~DeviceBlock();
  DeviceBlock(DeviceBlock&& other) noexcept;
  DeviceBlock& operator=(DeviceBlock&&) = delete;

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_;
};

/// A block that holds `values`.
template <class T>
DeviceBlock block_of(const std::vector<T>& values) {
  DeviceBlock block(static_cast<int64_t>(values.size() * sizeof(T)));
  for (size_t i = 0; i < values.size(); ++i) block.as<T>()[i] = values[i];
  return block;
}

/// Runs all submitted work, stream after stream in order.
void run_submitted();
/// The number of pieces of work that wait.
size_t submitted();

}  // namespace ripstop::emulated
