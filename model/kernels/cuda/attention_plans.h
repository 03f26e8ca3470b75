#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "model/kernels/cuda/attention_graph.h"
#include "model/kernels/cuda_attention.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// Earlier versions compute attention wrongly or lack features that are used here.
inline constexpr size_t kOldestCudnn = 91100;

struct AttentionGpu {
  int major = 0;             ///< major compute capability: 8 Ampere, 9 Hopper, 10 Blackwell
  size_t cudnn_version = 0;  ///< the result of cudnnGetVersion()
};

/// The Sums of backward on `gpu`; nullopt if `deterministic` and cuDNN has no correct deterministic way.
std::optional<Sums> attention_sums(const AttentionGpu& gpu, int64_t head_size, bool dense,
                                   bool deterministic);

/// Why cuDNN must not compute dense (or ragged) attention on `gpu`, although it would make a plan; nullopt if
/// cuDNN may compute it.
std::optional<std::string> attention_unsupported(const AttentionGpu& gpu, bool dense);

/// The operands of attention forward or backward; the gradients are null in forward.
struct AttentionOperands {
  const Documents& documents;
  const Heads& heads;
  const Tensor &qkv, &out, &log_sum_exp;
  const Tensor *dout = nullptr, *dqkv = nullptr;
};

/// The plans of one stream. A plan for one number of documents and one length is made when it is first used
/// or prepared, which takes up to a second, and is then kept. If cuDNN cannot compute a call, `forward` and
/// `backward` do nothing and return the reason; otherwise they return nullopt.
class AttentionPlans {
 public:
  explicit AttentionPlans(int device);
  ~AttentionPlans();
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  std::optional<std::string> forward(const KernelCall& call, const AttentionOperands& operands);
  std::optional<std::string> backward(const KernelCall& call, const AttentionOperands& operands);

  /// Makes the plans that forward() or backward() with `sizes` needs, if cuDNN computes calls of these sizes.
  /// Returns the number of plans made.
  int64_t prepare(const Stream& stream, const AttentionSizes& sizes, Direction direction);
  /// The number of plans, including refused ones.
  int64_t count() const { return std::ssize(plans_); }

 private:
  struct Call;
  const Plan& plan(Direction direction, const AttentionShape& shape, int64_t most_workspace_bytes);
  std::optional<std::string> all_plans(const Stream& stream, Call& call);
  std::optional<std::string> unsupported(const AttentionSizes& sizes) const;
  void ensure_handle(const Stream& stream);

  AttentionGpu gpu_;
  cudnnHandle_t handle_ = nullptr;  ///< made with the first plan
  std::map<std::pair<Direction, AttentionShape>, Plan> plans_;
};

}  // namespace ripstop::cuda
