// cuDNN's functions on the emulated GPU, in place of the library. They record what is set, let the
// installed cuDNN (mode real) or a rule (mode record) say what has a plan, and run plans with the
// interpreter on the stream of the handle. CALLS.md says what the library does in each call.
#include "tests/emulated_device/cudnn.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>

#include "tests/cuda/described_gpu.h"
#include "tests/emulated_device/cudnn_execution.h"
#include "tests/emulated_device/cudnn_interpreter.h"
#include "tests/emulated_device/cudnn_library.h"
#include "tests/emulated_device/cudnn_record.h"
#include "tests/emulated_device/cudnn_rule.h"
#include "tests/emulated_device/work_queue.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace ripstop::emulated {
namespace {

struct Cudnn {
  std::recursive_mutex mutex;
  CudnnMode mode = CudnnMode::kRecord;
  std::optional<size_t> version;
  std::string gpu = kH100.json();
  std::map<cudnnBackendDescriptor_t, DescriptorHandle> descriptors;
  std::set<cudnnHandle_t> handles;
  std::optional<CudnnLibrary> installed;  ///< opened when it is first asked

  Cudnn() {
    const char* asked = std::getenv("RIPSTOP_EMULATED_CUDNN");
    if (asked == nullptr || std::string_view(asked) == "record") return;
    if (std::string_view(asked) != "real")
      refuse("RIPSTOP_EMULATED_CUDNN", fmt::format("\"{}\" is neither \"record\" nor \"real\"", asked));
    mode = CudnnMode::kReal;
  }
  bool real() const { return mode == CudnnMode::kReal; }
  CudnnLibrary& library() {
    if (!installed) installed.emplace(gpu);
    return *installed;
  }
};
Cudnn& cudnn() {
  static Cudnn instance;
  return instance;
}

// The error text of the last call that failed here; empty if the library has it.
thread_local std::string last_words;
cudnnStatus_t failed(cudnnStatus_t status, std::string why) {
  last_words = std::move(why);
  return status;
}
cudnnStatus_t of_library(cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) last_words.clear();
  return status;
}

DescriptorHandle find(cudnnBackendDescriptor_t descriptor, const char* call) {
  const auto found = cudnn().descriptors.find(descriptor);
  if (found == cudnn().descriptors.end()) refuse(call, "the descriptor does not exist, or was destroyed");
  return found->second;
}
void check_handle(cudnnHandle_t handle, const char* call) {
  if (cudnn().handles.count(handle) == 0) refuse(call, "the handle does not exist, or was destroyed");
}

// Attributes that hold a handle of ours: the library gets the described GPU instead.
bool holds_handle(cudnnBackendAttributeName_t name) {
  return name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE || name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE ||
         name == CUDNN_ATTR_DEVICEPROP_HANDLE;
}

// Forwards an attribute. With the operation graph, heuristics and engines get the described GPU too, if the
// graph was made for a handle of ours.
cudnnStatus_t forward_attribute(cudnnBackendDescriptor_t descriptor, const DescriptorRecord& record,
                                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                int64_t count, const void* values) {
  CudnnLibrary& library = cudnn().library();
  const auto described = [&](cudnnBackendAttributeName_t attribute) {
    return of_library(library.set_gpu(descriptor, attribute));
  };
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_DEVICEPROP_HANDLE)
    return of_library(library.set(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                  std::ssize(cudnn().gpu), cudnn().gpu.data()));
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return described(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  const cudnnStatus_t status = of_library(library.set(descriptor, name, type, count, values));
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const auto graph = record.descriptor(name);
  if (graph == nullptr || !graph->has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) return status;
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) return described(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH) return described(CUDNN_ATTR_ENGINE_DEVICEPROP);
  return status;
}

cudnnStatus_t record_attribute(DescriptorRecord& record, cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  DescriptorRecord::Attribute attribute{.type = type, .count = count, .bytes = {}, .descriptors = {}};
  const auto* first = static_cast<const std::byte*>(values);
  attribute.bytes.assign(first, first + count * value_bytes(type));
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    for (int64_t i = 0; i < count; ++i)
      attribute.descriptors.push_back(
          find(static_cast<const cudnnBackendDescriptor_t*>(values)[i], "cudnnBackendSetAttribute"));
  record.attributes[name] = std::move(attribute);
  return CUDNN_STATUS_SUCCESS;
}

// The part that a finalized descriptor knows of the graph for which it was made.
cudnnStatus_t finish(DescriptorRecord& record) {
  for (const auto name : {CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                          CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG})
    if (const auto part = record.descriptor(name); part != nullptr) record.graph = part->graph;
  if (record.type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
    record.graph = read_graph(record);
    if (const auto why = not_interpreted(*record.graph))
      return failed(CUDNN_STATUS_NOT_SUPPORTED, "the emulated cuDNN does not run " + *why);
  }
  if (record.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && !cudnn().real() && lacks_knobs(record))
    return failed(CUDNN_STATUS_NOT_SUPPORTED, "");  // as cuDNN, which does not tell why either
  if (record.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && !cudnn().real()) {
    const RuleAnswer answer = plan_by_rule(*record.graph, orders_sums(record), cudnnGetVersion());
    if (!answer.refusal.empty()) return failed(CUDNN_STATUS_NOT_SUPPORTED, answer.refusal);
    record.workspace_bytes = answer.workspace_bytes;
  }
  record.finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

// Fills the descriptors that the caller has made with the settings of the engine. Asked for none, cuDNN 9.26
// does not tell how many there are.
cudnnStatus_t get_knobs(int64_t asked, int64_t* count, void* values) {
  *count = std::min(asked, std::ssize(kEngineKnobs));
  for (int64_t i = 0; i < *count; ++i) {
    const DescriptorHandle to =
        find(static_cast<const cudnnBackendDescriptor_t*>(values)[i], "cudnnBackendGetAttribute");
    const EngineKnob& knob = kEngineKnobs[static_cast<size_t>(i)];
    static_cast<void>(
        record_attribute(*to, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob.type));
    static_cast<void>(
        record_attribute(*to, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &knob.value));
    to->finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

// Heuristics, configurations and plans in mode record: one engine.
cudnnStatus_t get_by_rule(const DescriptorHandle& record, cudnnBackendAttributeName_t name, int64_t asked,
                          int64_t* count, void* values) {
  const auto give = [&](auto value) {
    *count = 1;
    if (asked > 0) std::memcpy(values, &value, sizeof value);
    return CUDNN_STATUS_SUCCESS;
  };
  // Fills a descriptor that the caller has made, as the library does.
  const auto fill = [&] {
    *count = 1;
    if (asked == 0) return CUDNN_STATUS_SUCCESS;
    const DescriptorHandle to =
        find(*static_cast<cudnnBackendDescriptor_t*>(values), "cudnnBackendGetAttribute");
    to->graph = record->graph;
    to->finalized = true;
    return CUDNN_STATUS_SUCCESS;
  };
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return fill();
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return get_knobs(asked, count, values);
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      return give(record->value<cudnnBackendKnobType_t>(name));
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE:
      return give(record->value<int64_t>(name));
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return give(int64_t{0});
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
      *count = std::ssize(cudnn().gpu) + 1;
      std::memcpy(values, cudnn().gpu.c_str(), static_cast<size_t>(std::min(asked, *count)));
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give(record->workspace_bytes);
    default:
      return failed(CUDNN_STATUS_NOT_SUPPORTED,
                    fmt::format("attribute {} cannot be read", static_cast<int>(name)));
  }
}

// The library filled descriptors that the caller has made: they belong to the same graph now.
void note_filled(const DescriptorRecord& from, cudnnBackendAttributeType_t type, int64_t count,
                 const void* values) {
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR || values == nullptr) return;
  for (int64_t i = 0; i < count; ++i) {
    const DescriptorHandle to =
        find(static_cast<const cudnnBackendDescriptor_t*>(values)[i], "cudnnBackendGetAttribute");
    to->graph = from.graph;
    to->finalized = true;
  }
}

using Lock = std::lock_guard<std::recursive_mutex>;

}  // namespace

CudnnMode cudnn_mode() {
  return cudnn().mode;
}
void set_cudnn_mode(CudnnMode mode) {
  const Lock lock(cudnn().mutex);
  if (!cudnn().descriptors.empty()) refuse("set_cudnn_mode", "descriptors of the other mode are alive");
  cudnn().mode = mode;
}
void set_cudnn_version(std::optional<size_t> version) {
  const Lock lock(cudnn().mutex);
  cudnn().version = version;
}
void set_cudnn_gpu(const std::string& json) {
  const Lock lock(cudnn().mutex);
  cudnn().installed.reset();
  cudnn().gpu = json;
}

}  // namespace ripstop::emulated

using namespace ripstop::emulated;

extern "C" {

size_t cudnnGetVersion() {
  const Lock lock(cudnn().mutex);
  if (cudnn().version) return *cudnn().version;
  return cudnn().real() ? cudnn().library().version() : CUDNN_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS:
      return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM:
      return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER:
      return "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER";
    case CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED:
      return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE:
      return "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE";
    case CUDNN_STATUS_NOT_INITIALIZED:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    default:
      return CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                                         : "CUDNN_STATUS_BAD_PARAM";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  const Lock lock(cudnn().mutex);
  if (max_size == 0) return;
  if (last_words.empty() && cudnn().real()) return cudnn().library().last_error(message, max_size);
  const size_t size = std::min(max_size - 1, last_words.size());
  std::memcpy(message, last_words.data(), size);
  message[size] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Lock lock(cudnn().mutex);
  *handle = new cudnnContext;
  cudnn().handles.insert(*handle);
  return CUDNN_STATUS_SUCCESS;
}

// Waits for the device, as the library does.
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  check_handle(handle, "cudnnDestroy");
  static_cast<void>(cudaDeviceSynchronize());
  const Lock lock(cudnn().mutex);
  cudnn().handles.erase(handle);
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const Lock lock(cudnn().mutex);
  check_handle(handle, "cudnnSetStream");
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  const Lock lock(cudnn().mutex);
  auto record = std::make_shared<DescriptorRecord>();
  record->type = type;
  if (cudnn().real()) {
    const cudnnStatus_t status = of_library(cudnn().library().create(type, descriptor));
    if (status != CUDNN_STATUS_SUCCESS) return status;
  } else {
    *descriptor = record.get();
  }
  cudnn().descriptors[*descriptor] = std::move(record);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const Lock lock(cudnn().mutex);
  const DescriptorHandle record = find(descriptor, "cudnnBackendDestroyDescriptor");
  cudnn().descriptors.erase(descriptor);
  return cudnn().real() ? of_library(cudnn().library().destroy(descriptor)) : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  const Lock lock(cudnn().mutex);
  const DescriptorHandle record = find(descriptor, "cudnnBackendSetAttribute");
  if (record->finalized)
    return failed(CUDNN_STATUS_BAD_PARAM, "an attribute of a finalized descriptor cannot be set");
  if (holds_handle(name))
    check_handle(*static_cast<const cudnnHandle_t*>(values), "cudnnBackendSetAttribute");
  if (!cudnn().real() || holds_handle(name)) {
    if (const auto why = wrong_attribute(*record, name, type, count))
      return failed(CUDNN_STATUS_BAD_PARAM, *why);
    if (values == nullptr) return failed(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the values are null");
  }
  DescriptorRecord next = *record;
  if (value_bytes(type) == 0 || count < 1 || values == nullptr) {
    // Only the library can say what is wrong with it.
    const cudnnStatus_t status = forward_attribute(descriptor, next, name, type, count, values);
    if (status == CUDNN_STATUS_SUCCESS)
      refuse("cudnnBackendSetAttribute", "an attribute that is not emulated");
    return status;
  }
  static_cast<void>(record_attribute(next, name, type, count, values));
  if (cudnn().real()) {
    const cudnnStatus_t status = forward_attribute(descriptor, next, name, type, count, values);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (const auto why = wrong_attribute(*record, name, type, count))
      refuse("cudnnBackendSetAttribute", *why);
  }
  *record = std::move(next);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t requested, int64_t* count, void* values) {
  const Lock lock(cudnn().mutex);
  const DescriptorHandle record = find(descriptor, "cudnnBackendGetAttribute");
  if (!record->finalized) return failed(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not finalized");
  if (!cudnn().real()) return get_by_rule(record, name, requested, count, values);
  const cudnnStatus_t status =
      of_library(cudnn().library().get(descriptor, name, type, requested, count, values));
  if (status == CUDNN_STATUS_SUCCESS && requested > 0) note_filled(*record, type, *count, values);
  return status;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const Lock lock(cudnn().mutex);
  const DescriptorHandle record = find(descriptor, "cudnnBackendFinalize");
  if (record->finalized) return failed(CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized already");
  if (cudnn().real()) {
    const cudnnStatus_t status = of_library(cudnn().library().finalize(descriptor));
    if (status != CUDNN_STATUS_SUCCESS) return status;
  } else if (const auto why = incomplete(*record)) {
    return failed(CUDNN_STATUS_BAD_PARAM, *why);
  }
  const cudnnStatus_t status = finish(*record);
  if (status != CUDNN_STATUS_SUCCESS || record->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      !cudnn().real())
    return status;
  int64_t count = 0;
  return of_library(cudnn().library().get(descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count, &record->workspace_bytes));
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variants) {
  const Lock lock(cudnn().mutex);
  check_handle(handle, "cudnnBackendExecute");
  const DescriptorHandle record = find(plan, "cudnnBackendExecute"),
                         pack = find(variants, "cudnnBackendExecute");
  if (record->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
    return failed(CUDNN_STATUS_BAD_PARAM, "not a plan and a variant pack");
  if (!record->finalized || !pack->finalized)
    return failed(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalized");
  if (!record->has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE))
    return failed(CUDNN_STATUS_BAD_PARAM, "the plan was made for a described GPU");
  const CudnnBindings bindings(*pack, *record->graph);
  if (bindings.status() != CUDNN_STATUS_SUCCESS) return failed(bindings.status(), bindings.why());
  void* workspace = pack->value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const int64_t bytes = record->workspace_bytes;
  if (bytes > 0 && workspace == nullptr)
    return failed(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan needs a workspace");
  submit(handle->stream, "cudnnBackendExecute",
         [graph = record->graph, memory = bindings.memory(), workspace, bytes] {
           run_plan(*graph, memory, workspace, bytes);
           return true;
         });
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
