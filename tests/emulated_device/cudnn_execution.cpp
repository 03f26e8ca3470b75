#include "tests/emulated_device/cudnn_execution.h"

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <utility>

#include "tests/emulated_device/work_queue.h"

namespace ripstop::emulated {

CudnnBindings::CudnnBindings(const DescriptorRecord& pack, const GraphRecord& graph) {
  const auto ids = pack.values<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  for (size_t i = 0; i < ids.size() && why_.empty(); ++i) bind(graph, ids[i], pointers[i]);
  for (const auto& [id, t] : graph.tensors)
    if (why_.empty() && !t->is_virtual && memory_.pointers.count(id) + memory_.scalars.count(id) == 0)
      wrong(CUDNN_STATUS_BAD_PARAM, fmt::format("no data pointer for tensor {}", id));
  memory_.allowed = on_device;
}

void CudnnBindings::bind(const GraphRecord& graph, int64_t id, void* data) {
  const auto found = graph.tensors.find(id);
  if (found == graph.tensors.end() || found->second->is_virtual)
    return wrong(CUDNN_STATUS_BAD_PARAM, fmt::format("tensor {} is not one that the plan binds", id));
  const GraphTensorRecord& t = *found->second;
  if (data == nullptr)
    return wrong(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, fmt::format("tensor {} is null", id));
  if (memory_.pointers.count(id) + memory_.scalars.count(id) > 0)
    refuse("cudnnBackendExecute", fmt::format("tensor {} is bound twice", id));
  if (t.by_value) {
    if (on_device(data, sizeof(float)))
      refuse("cudnnBackendExecute", fmt::format("the scalar {} lies in device memory", id));
    std::memcpy(&memory_.scalars[id], data, sizeof(float));
    return;
  }
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(t.alignment) != 0)
    return wrong(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                 fmt::format("tensor {} does not begin on a multiple of {} bytes", id, t.alignment));
  memory_.pointers[id] = data;
}

void CudnnBindings::wrong(cudnnStatus_t status, std::string why) {
  status_ = status;
  why_ = std::move(why);
}

void run_plan(const GraphRecord& graph, const GraphMemory& memory, void* workspace, int64_t bytes) {
  constexpr int kGarbage = 0xff;  // NaN in float32 and bfloat16
  if (bytes > 0 && !on_device(workspace, bytes))
    refuse("cudnnBackendExecute", fmt::format("the workspace has no {} bytes of device memory", bytes));
  const auto spoil = [&] {
    if (bytes > 0) std::memset(workspace, kGarbage, static_cast<size_t>(bytes));
  };
  spoil();
  try {
    interpret(graph, memory);
  } catch (const std::runtime_error& error) {
    refuse("cudnnBackendExecute", error.what());
  }
  spoil();
}

}  // namespace ripstop::emulated
