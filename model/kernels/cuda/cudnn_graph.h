// cuDNN's backend graph API, without the cudnn-frontend library: graphs of operations on tensors of four
// extents, and their execution plans. Source: cuDNN 9 backend API reference.
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

/// Throws Error(kResources) with cuDNN's last error text, unless `status` is CUDNN_STATUS_SUCCESS.
void check_cudnn(cudnnStatus_t status, const char* call);

using Extents = std::array<int64_t, 4>;

/// A tensor of a Graph, valid as long as the graph lives.
struct GraphTensor {
  cudnnBackendDescriptor_t descriptor = nullptr;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Extents extents{}, strides{};
};

/// Owns one backend descriptor. Set its attributes, then `finalize` it, then use it.
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
  /// Does nothing if `tensor` is null.
  void set(cudnnBackendAttributeName_t attribute, const GraphTensor* tensor) {
    if (tensor != nullptr) set(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, tensor->descriptor);
  }
  void finalize();

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// The GPU for which a plan is made. Set exactly one of `handle` and `properties`.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;  ///< a GPU that is only described; see device_properties()
  int major = 0;                           ///< major compute capability
};

/// A GPU described by cuDNN's JSON of device properties, for plans that never run. Needs cuDNN 9.8 or later.
Descriptor device_properties(const std::string& json);

/// The memory of the tensor `id` in one run: device memory, or host memory for a scalar.
struct Binding {
  int64_t id;
  void* data;
};

/// An execution plan, or the reason why there is no plan.
class Plan {
 public:
  bool ok() const { return refusal_.empty(); }
  const std::string& refusal() const { return refusal_; }
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Why configurations that cuDNN prefers were left out; empty if no configuration was.
  const std::string& left_out() const { return left_out_; }

  /// Launches the kernels on the stream of `handle`. Reads the host scalars before it returns.
  void run(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  friend class Graph;
  friend Plan refused(const std::string& why);
  Descriptor plan_;
  std::vector<Descriptor> parts_;  ///< descriptors to which the plan refers
  int64_t workspace_bytes_ = 0;
  std::string refusal_, left_out_;
};
Plan refused(const std::string& why);  ///< makes a Plan that is not ok()

struct Knob {
  cudnnBackendKnobType_t type;
  int64_t value;
};

/// Operations, in the order in which they are added. A tensor with an id is memory that an execution binds. A
/// tensor without an id exists only between operations ("virtual").
class Graph {
 public:
  static constexpr int64_t kNoId = 0;

  /// `by_value`: an execution binds host memory, so that a scalar needs no copy to the device.
  GraphTensor tensor(cudnnDataType_t type, const Extents& extents, const Extents& strides, int64_t id = kNoId,
                     const GraphTensor* ragged_offset = nullptr, bool by_value = false);
  /// Makes a float32 scalar, by value.
  GraphTensor scalar(int64_t id);
  /// Makes a virtual tensor with the extents and strides of `tensor`.
  GraphTensor like(const GraphTensor& tensor, cudnnDataType_t type);

  /// Arrays with a length for each document, in place of the extents of a product's rows (m), columns (n)
  /// and summed dim (k). Null: the extent is used. `zeros_beyond`: elements beyond the lengths count as 0.
  struct Lengths {
    const GraphTensor *m = nullptr, *n = nullptr, *k = nullptr;
    bool zeros_beyond = false;
  };
  void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c, const Lengths& lengths);
  /// y = mode(x, b); float32 arithmetic.
  void pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b, const GraphTensor& y);
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b = nullptr);
  /// The index of each element along dim `axis`, int32.
  GraphTensor index(const GraphTensor& x, int64_t axis);
  /// mode(a, b), boolean.
  GraphTensor compare(cudnnPointwiseMode_t mode, const GraphTensor& a, const GraphTensor& b);
  /// x if `mask`, else `other`, for each element.
  GraphTensor select(const GraphTensor& x, const GraphTensor& mask, const GraphTensor& other);
  void reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
  void reshape(const GraphTensor& x, const GraphTensor& y);

  /// Makes a plan from the first suggestion of cuDNN's heuristics that works with `knobs` set and needs at
  /// most `most_workspace_bytes` of workspace. With `engine`, asks no heuristics and tries only this engine
  /// with these knobs. Returns a refusal if no plan works. Consumes the graph.
  Plan plan(const PlanTarget& target, int64_t most_workspace_bytes, std::span<const Knob> knobs = {},
            std::optional<int64_t> engine = std::nullopt) &&;

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
