#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "model/core/rounding.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

cudaStream_t native_stream(const KernelCall& call);
/// Throws as check_cuda() (model/device/cuda_device.h) does.
void check(cudaError_t result, const char* call);

/// The numbers of blocks of a launch. If one of them is 0, nothing is launched.
struct Grid {
  int64_t x = 1, y = 1;
};

/// Launches `kernel`. `name` is for the error message. `threads` must be a multiple of 32, because shuffles
/// over a warp need all its lanes. Asynchronous.
template <class... Parameters>
void launch(const KernelCall& call, const char* name, void (*kernel)(Parameters...), Grid grid, int threads,
            std::type_identity_t<Parameters>... arguments) {
  if (grid.x == 0 || grid.y == 0) return;
  RIPSTOP_CHECK(grid.x < int64_t{1} << 31 && grid.y < 65536 && threads % 32 == 0,
                "{}: {} x {} blocks of {} threads", name, grid.x, grid.y, threads);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = native_stream(call);
  check(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

/// Threads for a row of `parts` parts, `per_thread` parts each: a multiple of 32, from 32 to `most`.
inline int row_threads(int64_t parts, int64_t per_thread, int most) {
  const int64_t threads = round_up(divide_up(parts, per_thread), 32);
  return threads < 32 ? 32 : threads > most ? most : static_cast<int>(threads);
}

/// Whether each row (of `columns` elements) begins at a multiple of `bytes` bytes. Ignores null tensors.
inline bool aligned(int64_t bytes, int64_t columns, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors) {
    if (t->empty()) continue;
    if (reinterpret_cast<uintptr_t>(t->data) % static_cast<uintptr_t>(bytes) != 0) return false;
    if (columns * element_bytes(t->dtype) % bytes != 0) return false;
  }
  return true;
}

/// Calls body(T{}) with the element type T of an activation dtype.
template <class Body>
void with_element(DType dtype, Body body) {
  if (dtype == DType::kBFloat16) {
    body(BFloat16{});
  } else {
    body(0.0F);
  }
}

/// Elements in 16 bytes, the widest access of a thread.
template <class T>
inline constexpr int kWhole = 16 / static_cast<int>(sizeof(T));

template <int kValue>
using Width = std::integral_constant<int, kValue>;

/// Calls body(Width<n>{}), where n is the number of elements per access: kWide if `wide`, else 1.
template <int kWide, class Body>
void with_width(bool wide, Body body) {
  if (wide) {
    body(Width<kWide>{});
  } else {
    body(Width<1>{});
  }
}

/// The elements of `t`; null if `t` is null. Does not check the dtype.
template <class T>
T* elements(const Tensor& t) {
  return static_cast<T*>(t.data);
}

}  // namespace ripstop::cuda
