// cuDNN's backend graph API, without the cudnn-frontend library: owning descriptors, graphs of operations on
// tensors of four extents, and execution plans for an attached GPU or for one that is only described.
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

/// Throws Error(kResources) with cuDNN's last error text, unless `status` is CUDNN_STATUS_SUCCESS.
void check_cudnn(cudnnStatus_t status, const char* call);

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
  /// Ends the setting of attributes: cuDNN checks them, and the descriptor can be used.
  void finalize();

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// The GPU for which a plan is made. Set exactly one member.
struct PlanTarget {
  cudnnHandle_t handle = nullptr;  ///< of an attached GPU: the plan can run
  /// of a described GPU (see device_properties()): the plan cannot run
  const Descriptor* properties = nullptr;
};

/// A GPU described by cuDNN's JSON of device properties. Plans for it can be made but not run. Needs cuDNN
/// 9.8 or later.
Descriptor device_properties(const std::string& json);

/// The memory that an execution binds to a tensor id: device memory, or host memory for a scalar.
struct Binding {
  int64_t id;
  void* data;
};

/// An execution plan, or the reason why there is none.
class Plan {
 public:
  bool ok() const { return refusal_.empty(); }
  /// Why there is no plan; empty if there is one.
  const std::string& refusal() const { return refusal_; }
  /// The workspace that run() needs.
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Why configurations that cuDNN prefers to this plan's were left out; empty if none was.
  const std::string& left_out() const { return left_out_; }

  /// Gives the plan's kernels to the stream of `handle`. The host scalars among `bindings` have been read on
  /// return.
  void run(cudnnHandle_t handle, std::span<const Binding> bindings, void* workspace) const;

 private:
  friend class Graph;
  friend Plan refused(const std::string& why);
  Descriptor plan_;
  std::vector<Descriptor> parts_;  ///< descriptors to which the plan refers
  int64_t workspace_bytes_ = 0;
  std::string refusal_, left_out_;
};
Plan refused(const std::string& why);

using Extents = std::array<int64_t, 4>;

/// A tensor of a Graph, valid as long as the graph lives. Does not own the descriptor.
struct GraphTensor {
  cudnnBackendDescriptor_t descriptor = nullptr;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  Extents extents{}, strides{};
};

/// A setting of an engine, such as its tile size.
struct Knob {
  cudnnBackendKnobType_t type;
  int64_t value;
};

/// Builds a graph of operations in the order in which they are added. A tensor with an id is memory that an
/// execution binds. A tensor without an id exists only between operations ("virtual").
class Graph {
 public:
  static constexpr int64_t kNoId = 0;

  /// A tensor with these extents and strides (in elements). With a `ragged_offset`, document d begins at
  /// element d of that tensor. Virtual without an id.
  GraphTensor tensor(cudnnDataType_t type, const Extents& extents, const Extents& strides, int64_t id = kNoId,
                     const GraphTensor* ragged_offset = nullptr);
  /// A float32 scalar that an execution binds to host memory.
  GraphTensor scalar(int64_t id);
  /// A virtual tensor with the extents and strides of `tensor`.
  GraphTensor like(const GraphTensor& tensor, cudnnDataType_t type);

  /// Tensors with one length per document, which replace extents of a product: its rows (m), its columns (n)
  /// and the summed dim (k). Null: the extent holds for all documents. `zeros_beyond`: elements beyond the
  /// lengths count as 0.
  struct Lengths {
    const GraphTensor *m = nullptr, *n = nullptr, *k = nullptr;
    bool zeros_beyond = false;
  };
  /// c = a b, for each document and head; sums in float32.
  void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c, const Lengths& lengths);
  /// y = mode(x, b), or mode(x) if b is null, in float32 arithmetic.
  void pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b, const GraphTensor& y);
  /// The same, into a virtual float32 tensor, which is returned.
  GraphTensor pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b = nullptr);
  /// Returns an int32 tensor whose elements are their own index along dim `axis`.
  GraphTensor index(const GraphTensor& x, int64_t axis);
  /// Returns a boolean tensor, mode(a, b).
  GraphTensor compare(cudnnPointwiseMode_t mode, const GraphTensor& a, const GraphTensor& b);
  /// Returns, for each element, x where `mask` is true, else `other`.
  GraphTensor select(const GraphTensor& x, const GraphTensor& mask, const GraphTensor& other);
  /// y = x reduced by `op` along each dim in which y has a smaller extent than x.
  void reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
  /// y = the elements of x in the extents and strides of y.
  void reshape(const GraphTensor& x, const GraphTensor& y);

  /// Makes a plan from cuDNN's suggested configurations: the first that works with `knobs` set and with at
  /// most `most_workspace_bytes` of workspace. Returns a refusal if there is none. The graph cannot be used
  /// any more.
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
