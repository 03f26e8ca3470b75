// Prints cuDNN's description of GPU 0 as JSON. From it, plans can be made on machines without a GPU (see
// device_properties in cudnn_graph.h).
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <string>

#include "model/kernels/cuda/cudnn_graph.h"

namespace {

using ripstop::cuda::check_cudnn;
using ripstop::cuda::Descriptor;

std::string properties_of_gpu() {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnnCreate(&handle), "cudnnCreate");
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle);
  properties.finalize();
  const auto get = [&](int64_t capacity, int64_t& count, char* text) {
    check_cudnn(cudnnBackendGetAttribute(properties.get(), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                         CUDNN_TYPE_CHAR, capacity, &count, text),
                "cudnnBackendGetAttribute");
  };
  int64_t count = 0;
  get(0, count, nullptr);
  std::string json(static_cast<size_t>(count), '\0');
  get(count, count, json.data());
  check_cudnn(cudnnDestroy(handle), "cudnnDestroy");
  return json.substr(0, json.find('\0'));
}

}  // namespace

int main() {
  constexpr int kSkipped = 77;
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found != cudaSuccess || devices == 0) {
    fmt::print("skipped: no GPU ({})\n", cudaGetErrorString(found));
    return kSkipped;
  }
  try {
    fmt::print("{}\n", properties_of_gpu());
  } catch (const ripstop::Error& error) {
    fmt::print(stderr, "FATAL {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
