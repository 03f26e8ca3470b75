// Prints cuDNN's description of GPU 0 as JSON. From it, plans can be made on machines without a GPU (see
// device_properties in cudnn_graph.h). A second line of JSON says in what it differs from the description of
// described_gpu.h, if that knows the GPU.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/kernels/cuda/cudnn_graph.h"
#include "tests/cuda/described_gpu.h"

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

void print_differences(const nlohmann::json& found) {
  using namespace ripstop;
  for (const DescribedGpu& gpu : {kA100, kH100, kL40S, kB200, kRtxPro6000}) {
    if (found.value("deviceName", "") != gpu.name) continue;
    const nlohmann::json described = nlohmann::json::parse(gpu.json());
    nlohmann::json differences = nlohmann::json::object();
    for (const auto& [key, value] : described.items())
      if (!found.contains(key) || found[key] != value)
        differences[key] = {{"described", value}, {"found", found.value(key, nlohmann::json())}};
    fmt::print("{}\n",
               nlohmann::json{{"differing", differences.size()}, {"differences", differences}}.dump());
  }
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
    const std::string properties = properties_of_gpu();
    fmt::print("{}\n", properties);
    print_differences(nlohmann::json::parse(properties));
  } catch (const ripstop::Error& error) {
    fmt::print(stderr, "FATAL {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
