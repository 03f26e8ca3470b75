// cuDNN's backend graph API without its front end: descriptors that own themselves, graphs of operations on
// tensors of four extents, and plans made of them for a GPU, or for one described by its properties alone.
// Source: cuDNN 9 backend API reference.
#pragma once
#include <cudnn.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/core/error.h"

namespace ripstop::cuda {

/// Throws unless `status` is success: Error(kResources) with cuDNN's own last words.
void check_cudnn(cudnnStatus_t status, const char* call);

/// Owns one backend descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <class T>
  void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
           std::span<const T> values) {
    check_cudnn(cudnnBackendSetAttribute(descriptor_, attribute, type, static_cast<int64_t>(values.size()),
                                         values.data()),
                "cudnnBackendSetAttribute");
  }
  template <class T>
  void set(cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type, const T& value) {
    set(attribute, type, std::span<const T>(&value, 1));
  }
  void set(cudnnBackendAttributeName_t attribute, const Descriptor& value) {
    set(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, value.get());
  }
  void finalize();

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// For which GPU a plan is made. Exactly one of the two.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;  ///< see device_properties
};

/// A GPU described by cuDNN's JSON of device properties: plans for it can be made, not run. cuDNN 9.8 or
/// later.
Descriptor device_properties(const std::string& json);

/// One pointer of an execution: to device memory, or to host memory for scalars.
struct Binding {
  int64_t id;
  void* data;
};

/// An execution plan, or why there is none.
class Plan {
 public:
  bool ok() const { return refusal_.empty(); }
  const std::string& refusal() const { return refusal_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }

  /// Gives the plan's kernels to the handle's stream. Host scalars are read before it returns.
  void run(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  friend class Graph;
  friend Plan refused(const std::string& why);
  Descriptor plan_;
  std::vector<Descriptor> parts_;  ///< what the plan was made of
  int64_t workspace_bytes_ = 0;
  std::string refusal_;
};
Plan refused(const std::string& why);

using Extents = std::array<int64_t, 4>;

/// A tensor of a graph; valid as long as the graph.
struct GraphTensor {
  cudnnBackendDescriptor_t descriptor = nullptr;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Extents extents{}, strides{};
};

/// What a knob of an engine is set to.
struct Knob {
  cudnnBackendKnobType_t type;
  int64_t value;
};

/// Operations in the order in which they are added. A tensor with an id is memory that an execution binds;
/// one without exists between operations only.
class Graph {
 public:
  static constexpr int64_t kNoId = 0;

  GraphTensor tensor(cudnnDataType_t type, const Extents& extents, const Extents& strides, int64_t id = kNoId,
                     const GraphTensor* ragged_offset = nullptr);
  /// A float32 that an execution binds to host memory.
  GraphTensor scalar(int64_t id);
  /// Another tensor of the same extents that exists between operations only.
  GraphTensor like(const GraphTensor& tensor, cudnnDataType_t type);

  /// Lengths that replace extents of a product, by document: of rows, columns and the summed dim. Null: none.
  /// `zeros_beyond`: what lies beyond them in the product is 0.
  struct Lengths {
    const GraphTensor *m = nullptr, *n = nullptr, *k = nullptr;
    bool zeros_beyond = false;
  };
  void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c, const Lengths& lengths);
  /// y = mode(x, b); float32 arithmetic.
  void pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b, const GraphTensor& y);
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b = nullptr);
  /// int32: each element's place along dim `axis`.
  GraphTensor index(const GraphTensor& x, int64_t axis);
  /// Boolean.
  GraphTensor compare(cudnnPointwiseMode_t mode, const GraphTensor& a, const GraphTensor& b);
  /// x where `mask`, else `other`.
  GraphTensor select(const GraphTensor& x, const GraphTensor& mask, const GraphTensor& other);
  void reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
  void reshape(const GraphTensor& x, const GraphTensor& y);

  /// The first configuration of the library's heuristics that can be made into a plan with at most
  /// `most_workspace_bytes` of workspace, its engine's knobs set as told. The graph is used up.
  Plan plan(const PlanTarget& target, int64_t most_workspace_bytes, std::span<const Knob> knobs = {}) &&;

 private:
  Descriptor& keep(Descriptor descriptor);
  void add(Descriptor operation);
  void add_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math, const GraphTensor& x,
                     const GraphTensor* b, const GraphTensor* t, const GraphTensor& y,
                     std::optional<int64_t> axis = std::nullopt);

  std::vector<Descriptor> parts_;
  std::vector<cudnnBackendDescriptor_t> operations_;
  int64_t next_id_ = int64_t{1} << 32;
};

}  // namespace ripstop::cuda
