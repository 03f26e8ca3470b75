// Values a caller sets on cuDNN's backend descriptors, and the graph of operations that it means. cuDNN does
// not give operations back, so the interpreter reads this record.
#pragma once
#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ripstop::emulated {

/// A tensor of a graph: four extents, strides in elements.
struct GraphTensorRecord {
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<int64_t, 4> extents{}, strides{};
  int64_t id = 0, alignment = 0;
  bool is_virtual = false, by_value = false;
  /// Null, or where each index of the first dim begins, in elements.
  std::shared_ptr<const GraphTensorRecord> ragged_offset;

  bool in_memory() const { return !is_virtual && !by_value; }
};
using TensorHandle = std::shared_ptr<const GraphTensorRecord>;

/// One operation. Matmul: y = x b. Pointwise: y = mode(x, b), or t ? x : b. Reduction and reshape: y from x.
struct OperationRecord {
  enum class Kind { kMatmul, kPointwise, kReduction, kReshape } kind = Kind::kMatmul;
  TensorHandle x{}, b{}, t{}, y{};
  /// Matmul: lengths that replace extents, by the first dim; and what elements beyond them are.
  TensorHandle m{}, n{}, k{};
  std::optional<double> padding{};
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
  int64_t axis = -1;
  cudnnReduceTensorOp_t reduce = CUDNN_REDUCE_TENSOR_ADD;
};

struct GraphRecord {
  std::vector<OperationRecord> operations;
  /// Every tensor that an operation uses, lengths and offsets included, by id.
  std::map<int64_t, TensorHandle> tensors;
};
using GraphHandle = std::shared_ptr<const GraphRecord>;

/// One backend descriptor: its attributes as they were set. Others refer to it by shared ownership, so that
/// it may be destroyed before them.
struct DescriptorRecord {
  struct Attribute {
    cudnnBackendAttributeType_t type{};
    int64_t count = 0;
    std::vector<std::byte> bytes;                                ///< of types that are values
    std::vector<std::shared_ptr<DescriptorRecord>> descriptors;  ///< of CUDNN_TYPE_BACKEND_DESCRIPTOR
  };

  cudnnBackendDescriptorType_t type{};
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> attributes;
  GraphHandle graph;            ///< of finalized operation graphs, and of all that is made for one
  int64_t workspace_bytes = 0;  ///< of finalized plans

  bool has(cudnnBackendAttributeName_t name) const { return attributes.count(name) > 0; }
  /// The values of an attribute; empty if it is not set.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name) const {
    const auto found = attributes.find(name);
    if (found == attributes.end()) return {};
    const auto* first = reinterpret_cast<const T*>(found->second.bytes.data());
    return std::vector<T>(first, first + found->second.count);
  }
  /// The first value of an attribute, or `other`.
  template <class T>
  T value(cudnnBackendAttributeName_t name, T other = {}) const {
    const auto all = values<T>(name);
    return all.empty() ? other : all.front();
  }
  /// The first descriptor of an attribute, or null.
  std::shared_ptr<DescriptorRecord> descriptor(cudnnBackendAttributeName_t name) const;
};
using DescriptorHandle = std::shared_ptr<DescriptorRecord>;

/// The bytes of one value of an attribute type; 0 for a type that ripstop does not use.
int64_t value_bytes(cudnnBackendAttributeType_t type);

/// The fault in setting an attribute of a descriptor, as far as ripstop sets attributes; nullopt if
/// nothing is.
std::optional<std::string> wrong_attribute(const DescriptorRecord& record, cudnnBackendAttributeName_t name,
                                           cudnnBackendAttributeType_t type, int64_t count);

/// The part that a descriptor lacks before it is finalized; nullopt if nothing.
std::optional<std::string> incomplete(const DescriptorRecord& record);

/// The graph of a CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR.
GraphHandle read_graph(const DescriptorRecord& record);

}  // namespace ripstop::emulated
