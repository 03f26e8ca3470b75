// Shared by the fakes of the CUDA run time and of NCCL: handles, and the memory of the fake device.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tests/cuda/recorder.h"

namespace ripstop::recording {

/// Handles are numbers from 1.
template <class Handle>
int number_of(Handle handle) {
  return static_cast<int>(reinterpret_cast<intptr_t>(handle)) - 1;
}
template <class Handle>
Handle handle_of(int number) {
  return reinterpret_cast<Handle>(static_cast<intptr_t>(number) + 1);
}

inline Span span(const void* data, size_t bytes) {
  return {static_cast<const std::byte*>(data), static_cast<int64_t>(bytes)};
}

/// The size of a block of the device's memory, by its first byte.
int64_t bytes_of_block(const void* data);

}  // namespace ripstop::recording
