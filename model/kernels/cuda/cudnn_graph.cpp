#include "model/kernels/cuda/cudnn_graph.h"

#include <algorithm>
#include <utility>

#include "model/core/one_line.h"

namespace ripstop::cuda {
namespace {

// Returns cuDNN's text on its last error, as one line.
std::string last_words() {
  char text[2048] = "";
  cudnnGetLastErrorString(text, sizeof text);
  return in_one_line(text);
}

// Returns at most `most` descriptors of an attribute. cuDNN fills descriptors that the caller has created.
std::vector<Descriptor> get_list(const Descriptor& from, cudnnBackendAttributeName_t attribute,
                                 cudnnBackendDescriptorType_t type, int64_t most) {
  std::vector<Descriptor> list;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) raw.push_back(list.emplace_back(type).get());
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(from.get(), attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                                       raw.data()),
              "cudnnBackendGetAttribute");
  list.resize(static_cast<size_t>(std::min(count, most)));
  return list;
}

template <class T>
T get_one(const Descriptor& from, cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type) {
  T value{};
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(from.get(), attribute, type, 1, &count, &value),
              "cudnnBackendGetAttribute");
  return value;
}

Descriptor knob_choice(const Knob& knob) {
  Descriptor choice(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, knob.type);
  choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, knob.value);
  choice.finalize();
  return choice;
}

int64_t engine_index(const Descriptor& configuration) {
  const Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
              "cudnnBackendGetAttribute");
  return get_one<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64);
}

Descriptor configuration_of(const Descriptor& graph, const PlanTarget& target, int64_t index,
                            std::vector<Descriptor> choices, std::vector<Descriptor>& parts) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, index);
  if (target.properties != nullptr) engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, *target.properties);
  engine.finalize();
  Descriptor changed(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  changed.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& choice : choices) raw.push_back(choice.get());
  changed.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
              std::span<const cudnnBackendDescriptor_t>(raw));
  changed.finalize();
  // The configuration refers to its engine and knobs, so `parts` keeps both alive.
  parts.push_back(std::move(engine));
  for (Descriptor& choice : choices) parts.push_back(std::move(choice));
  return changed;
}

std::vector<Descriptor> choices_of(std::span<const Knob> knobs) {
  std::vector<Descriptor> choices;
  for (const Knob& knob : knobs) choices.push_back(knob_choice(knob));
  return choices;
}

// Makes a new configuration of the same engine in which only the given knobs differ, because cuDNN cannot
// change a finalized configuration.
Descriptor with_knobs(const Descriptor& graph, const PlanTarget& target, const Descriptor& configuration,
                      std::span<const Knob> knobs, std::vector<Descriptor>& parts) {
  std::vector<Descriptor> choices = choices_of(knobs);
  // Asks for all possible knobs, because cuDNN 9.26 does not tell the number of choices.
  for (const Descriptor& old : get_list(configuration, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    const Knob knob{
        get_one<cudnnBackendKnobType_t>(old, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
        get_one<int64_t>(old, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64)};
    const bool given =
        std::any_of(knobs.begin(), knobs.end(), [&](const Knob& k) { return k.type == knob.type; });
    if (!given) choices.push_back(knob_choice(knob));
  }
  return configuration_of(graph, target, engine_index(configuration), std::move(choices), parts);
}

// Returns the configurations, the best first. They refer to `heuristics`.
std::vector<Descriptor> best_first(const Descriptor& graph, const PlanTarget& target,
                                   Descriptor& heuristics) {
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  heuristics.finalize();
  int64_t count = 0;
  check_cudnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
              "cudnnBackendGetAttribute");
  return get_list(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw Error(ExitCode::kResources,
              fmt::format("{}: {}: {}", call, cudnnGetErrorString(status), last_words()),
              "`ripstop doctor` shows driver, GPUs and the versions that ripstop was built for");
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}
Descriptor::~Descriptor() {
  if (descriptor_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(descriptor_));
}
Descriptor::Descriptor(Descriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
void Descriptor::finalize() {
  check_cudnn(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
}

Descriptor device_properties(const std::string& json) {
  Descriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 std::span<const char>(json.data(), json.size()));
  properties.finalize();
  return properties;
}

Plan refused(const std::string& why) {
  Plan plan;
  plan.refusal_ = why;
  return plan;
}

void Plan::run(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  for (const Binding& binding : bindings) {
    ids.push_back(binding.id);
    pointers.push_back(binding.data);
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::span<const int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  check_cudnn(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
}

Descriptor& Graph::keep(Descriptor descriptor) {
  descriptor.finalize();
  return parts_.emplace_back(std::move(descriptor));
}

void Graph::add(Descriptor operation) {
  operations_.push_back(keep(std::move(operation)).get());
}

GraphTensor Graph::tensor(cudnnDataType_t type, const Extents& extents, const Extents& strides, int64_t id,
                          const GraphTensor* ragged_offset, bool by_value) {
  // Heads are aligned to 16 bytes, because cuDNN accepts only head sizes that are multiples of 8. Lengths and
  // offsets may begin at any document, so these are aligned only to the size of one number.
  const bool index = id != kNoId && (type == CUDNN_DATA_INT32 || type == CUDNN_DATA_INT64);
  const int64_t alignment = !index ? 16 : type == CUDNN_DATA_INT32 ? 4 : 8;
  Descriptor t(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  t.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
  t.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, std::span<const int64_t>(extents));
  t.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::span<const int64_t>(strides));
  t.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id == kNoId ? next_id_++ : id);
  t.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, alignment);
  // A tensor without an id only joins two operations.
  t.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, id == kNoId);
  t.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
  t.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, ragged_offset);
  return {keep(std::move(t)).get(), type, extents, strides};
}

GraphTensor Graph::scalar(int64_t id) {
  constexpr Extents kOne{1, 1, 1, 1};
  return tensor(CUDNN_DATA_FLOAT, kOne, kOne, id, nullptr, /*by_value=*/true);
}

GraphTensor Graph::like(const GraphTensor& t, cudnnDataType_t type) {
  return tensor(type, t.extents, t.strides);
}

void Graph::matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c, const Lengths& lengths) {
  Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  // Sums are in float32, whatever the operands are.
  kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  if (lengths.zeros_beyond) kind.set(CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 0.0);
  Descriptor o(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, &a);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, &b);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, &c);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, lengths.m);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, lengths.n);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, lengths.k);
  o.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, keep(std::move(kind)));
  add(std::move(o));
}

void Graph::add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const GraphTensor& x,
                          const GraphTensor* b, const GraphTensor* t, const GraphTensor& y,
                          std::optional<int64_t> axis) {
  Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
  kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, math);
  if (axis) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, *axis);
  Descriptor o(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(kind)));
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, &x);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
  o.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &y);
  add(std::move(o));
}

void Graph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b,
                      const GraphTensor& y) {
  add_pointwise(mode, CUDNN_DATA_FLOAT, x, b, nullptr, y);
}

GraphTensor Graph::pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b) {
  const GraphTensor y = like(x, CUDNN_DATA_FLOAT);
  pointwise(mode, x, b, y);
  return y;
}

GraphTensor Graph::index(const GraphTensor& x, int64_t axis) {
  const GraphTensor y = like(x, CUDNN_DATA_INT32);
  add_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, x, nullptr, nullptr, y, axis);
  return y;
}

GraphTensor Graph::compare(cudnnPointwiseMode_t mode, const GraphTensor& a, const GraphTensor& b) {
  const GraphTensor y = like(a, CUDNN_DATA_BOOLEAN);
  add_pointwise(mode, CUDNN_DATA_BOOLEAN, a, &b, nullptr, y);
  return y;
}

GraphTensor Graph::select(const GraphTensor& x, const GraphTensor& mask, const GraphTensor& other) {
  const GraphTensor y = like(x, CUDNN_DATA_FLOAT);
  add_pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, &other, &mask, y);
  return y;
}

void Graph::reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y) {
  Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, op);
  kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  Descriptor o(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, keep(std::move(kind)));
  o.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &x);
  o.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &y);
  add(std::move(o));
}

void Graph::reshape(const GraphTensor& x, const GraphTensor& y) {
  Descriptor o(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  o.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, &x);
  o.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, &y);
  add(std::move(o));
}

Plan Graph::plan(const PlanTarget& target, int64_t most_workspace_bytes, std::span<const Knob> knobs,
                 std::optional<int64_t> engine) && {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::span<const cudnnBackendDescriptor_t>(operations_));
  // Device properties take the handle's place in tests without a GPU.
  if (target.handle != nullptr) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  graph.finalize();
  Plan result;
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  std::vector<Descriptor> configurations;
  if (engine) {
    configurations.push_back(configuration_of(graph, target, *engine, choices_of(knobs), result.parts_));
    knobs = {};
  } else {
    configurations = best_first(graph, target, heuristics);
  }
  // refusal_ collects the reasons of the configurations that fail.
  if (configurations.empty()) result.refusal_ = "no engine: " + last_words();
  for (Descriptor& heuristic : configurations) {
    Descriptor configuration =
        knobs.empty() ? std::move(heuristic) : with_knobs(graph, target, heuristic, knobs, result.parts_);
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (target.handle != nullptr)
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    if (target.properties != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    if (cudnnBackendFinalize(plan.get()) != CUDNN_STATUS_SUCCESS) {
      result.refusal_ += last_words() + "; ";
      continue;
    }
    const auto bytes = get_one<int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
    if (bytes > most_workspace_bytes) {
      result.refusal_ += fmt::format("{} bytes of workspace, {} allowed; ", bytes, most_workspace_bytes);
      continue;
    }
    result.left_out_ = std::exchange(result.refusal_, "");
    result.workspace_bytes_ = bytes;
    result.plan_ = std::move(plan);
    result.parts_.push_back(std::move(configuration));
    break;
  }
  result.parts_.push_back(std::move(heuristics));
  result.parts_.push_back(std::move(graph));
  // The plan refers to the descriptors of the graph.
  for (Descriptor& part : parts_) result.parts_.push_back(std::move(part));
  return result;
}

}  // namespace ripstop::cuda
