#include "tests/emulated_device/cudnn_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tests/emulated_device/cudnn_arithmetic.h"

namespace ripstop::emulated {
namespace {

// An attribute that ripstop sets: its descriptor, type, the most values, and whether it must be set.
struct Rule {
  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  int64_t most;
  bool needed;
};
constexpr int64_t kAny = INT64_MAX;
constexpr auto kDescriptor = CUDNN_TYPE_BACKEND_DESCRIPTOR;

constexpr Rule kRules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kAny, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, kAny, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, kDescriptor, 1, false},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_PADDING_VALUE, CUDNN_TYPE_DOUBLE, 1, false},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, kDescriptor,
     1, false},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, kDescriptor,
     1, false},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, kDescriptor,
     1, false},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kDescriptor,
     1, true},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, kDescriptor, 1,
     true},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, kDescriptor, 1,
     false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, kDescriptor, 1,
     false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, kDescriptor, 1,
     true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
     true},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, kDescriptor, 1,
     true},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, kDescriptor, 1,
     true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, kDescriptor, 1, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, kDescriptor, kAny, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, false},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, kDescriptor, 1, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, true},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, kDescriptor, 1, false},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, kDescriptor, 1, true},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_DEVICEPROP, kDescriptor, 1, false},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, true},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, true},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, kDescriptor, 1, true},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, kDescriptor, kAny, false},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, kDescriptor, 1, true},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, false},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, kDescriptor, 1, false},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kAny,
     false},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kAny,
     false},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, false},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, kAny,
     false},
    {CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, 1, false},
};

// Tensors that several operations share are read once.
class GraphReader {
 public:
  GraphHandle read(const DescriptorRecord& graph) {
    const auto& operations = graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors;
    for (const DescriptorHandle& o : operations) result_->operations.push_back(operation(*o));
    return result_;
  }

 private:
  TensorHandle tensor(const DescriptorRecord& from, cudnnBackendAttributeName_t name) {
    const DescriptorHandle record = from.descriptor(name);
    if (record == nullptr) return nullptr;
    TensorHandle& known = read_[record.get()];
    if (known != nullptr) return known;
    const auto read = std::make_shared<GraphTensorRecord>();
    read->type = record->value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    copy_extents(record->values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS), read->extents);
    copy_extents(record->values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES), read->strides);
    read->id = record->value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    read->alignment = record->value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    read->is_virtual = record->value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    read->by_value = record->value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    read->ragged_offset = tensor(*record, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC);
    result_->tensors.emplace(read->id, read);
    return known = read;
  }
  static void copy_extents(const std::vector<int64_t>& from, std::array<int64_t, 4>& to) {
    to = {1, 1, 1, 1};
    std::copy_n(from.begin(), std::min<size_t>(from.size(), 4), to.begin());
  }

  OperationRecord operation(const DescriptorRecord& o) {
    switch (o.type) {
      case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return matmul(o);
      case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return pointwise(o);
      case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return reduction(o);
      default:
        return {.kind = OperationRecord::Kind::kReshape,
                .x = tensor(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                .y = tensor(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    }
  }
  OperationRecord matmul(const DescriptorRecord& o) {
    OperationRecord record{.kind = OperationRecord::Kind::kMatmul,
                           .x = tensor(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                           .b = tensor(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                           .y = tensor(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC),
                           .m = tensor(o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC),
                           .n = tensor(o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC),
                           .k = tensor(o, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC)};
    const DescriptorHandle kind = o.descriptor(CUDNN_ATTR_OPERATION_MATMUL_DESC);
    if (kind->has(CUDNN_ATTR_MATMUL_PADDING_VALUE))
      record.padding = kind->value<double>(CUDNN_ATTR_MATMUL_PADDING_VALUE);
    return record;
  }
  OperationRecord pointwise(const DescriptorRecord& o) {
    const DescriptorHandle kind = o.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    return {.kind = OperationRecord::Kind::kPointwise,
            .x = tensor(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
            .b = tensor(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
            .t = tensor(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
            .y = tensor(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC),
            .mode = kind->value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE),
            .axis = kind->value<int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1)};
  }
  OperationRecord reduction(const DescriptorRecord& o) {
    const DescriptorHandle kind = o.descriptor(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    return {.kind = OperationRecord::Kind::kReduction,
            .x = tensor(o, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
            .y = tensor(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC),
            .reduce = kind->value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR)};
  }

  std::shared_ptr<GraphRecord> result_ = std::make_shared<GraphRecord>();
  std::map<const DescriptorRecord*, TensorHandle> read_;
};

// The contradiction between attributes of a finished descriptor.
std::optional<std::string> contradiction(const DescriptorRecord& r) {
  const auto count = [&](cudnnBackendAttributeName_t name) {
    const auto found = r.attributes.find(name);
    return found == r.attributes.end() ? 0 : found->second.count;
  };
  if (r.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    const auto extents = r.values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
    const auto strides = r.values<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    if (extents.size() > CUDNN_DIM_MAX || extents.size() != strides.size())
      return fmt::format("{} dimensions and {} strides", extents.size(), strides.size());
    const auto alignment = r.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    if (alignment <= 0 || alignment % bytes_of(r.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)) != 0)
      return fmt::format("an alignment of {} bytes", alignment);
    const auto count = std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
    if (r.value<bool>(CUDNN_ATTR_TENSOR_IS_BY_VALUE) && count > 1)
      return fmt::format("{} elements by value", count);
  }
  if (r.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR &&
      count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) != count(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS))
    return fmt::format("{} unique ids, {} data pointers", count(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
                       count(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS));
  return std::nullopt;
}

}  // namespace

DescriptorHandle DescriptorRecord::descriptor(cudnnBackendAttributeName_t name) const {
  const auto found = attributes.find(name);
  return found == attributes.end() || found->second.descriptors.empty() ? nullptr
                                                                        : found->second.descriptors.front();
}

int64_t value_bytes(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_POINTWISE_MODE:
    case CUDNN_TYPE_REDUCTION_OPERATOR_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_KNOB_TYPE:
      return 4;
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
      return 1;
    default:
      return 0;
  }
}

std::optional<std::string> wrong_attribute(const DescriptorRecord& record, cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t count) {
  const auto rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) {
    return r.descriptor == record.type && r.name == name;
  });
  if (rule == std::end(kRules))
    return fmt::format("attribute {} of a descriptor of type {} is not emulated", static_cast<int>(name),
                       static_cast<int>(record.type));
  if (rule->type != type)
    return fmt::format("attribute {} has type {}, not {}", static_cast<int>(name),
                       static_cast<int>(rule->type), static_cast<int>(type));
  if (count < 1 || count > rule->most)
    return fmt::format("attribute {} takes 1 to {} values, not {}", static_cast<int>(name), rule->most,
                       count);
  return std::nullopt;
}

std::optional<std::string> incomplete(const DescriptorRecord& record) {
  for (const Rule& rule : kRules)
    if (rule.descriptor == record.type && rule.needed && !record.has(rule.name))
      return fmt::format("attribute {} is not set", static_cast<int>(rule.name));
  for (const auto& [name, attribute] : record.attributes)
    for (const DescriptorHandle& part : attribute.descriptors)
      if (!part->finalized)
        return fmt::format("the descriptor in attribute {} is not finalized", static_cast<int>(name));
  return contradiction(record);
}

GraphHandle read_graph(const DescriptorRecord& record) {
  return GraphReader().read(record);
}

}  // namespace ripstop::emulated
