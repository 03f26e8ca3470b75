// Attention on cuDNN: the handle and the plans of one stream.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/kernels/cuda/attention_graph.h"
#include "model/kernels/cuda_attention_schedule.h"
#include "model/ops/kernel_table.h"

namespace ripstop::cuda {

/// The oldest cuDNN that works. Earlier ones compute attention wrongly or lack features that are used here.
inline constexpr size_t kOldestCudnn = 91100;

/// What attention_sums() and attention_unsupported() must know of the GPU and cuDNN.
struct AttentionGpu {
  int major = 0;             ///< first number of the compute capability: 8 Ampere, 9 Hopper, 10 Blackwell
  size_t cudnn_version = 0;  ///< as cudnnGetVersion returns it
};

/// Returns how backward adds up. Returns nullopt if cuDNN computes no correct gradient on this GPU or, with
/// `deterministic`, none that is deterministic.
std::optional<Sums> attention_sums(const AttentionGpu& gpu, int64_t head_size, bool dense,
                                   bool deterministic);

/// Returns the reason why cuDNN must not compute the attention of such documents on this GPU, although it
/// would make the plans; nullopt if it may.
std::optional<std::string> attention_unsupported(const AttentionGpu& gpu, bool dense);

/// The operands of one call, as in ops.h. `dout` and `dqkv` are null in forward.
struct AttentionOperands {
  const Documents& documents;
  const Heads& heads;
  const Tensor &qkv, &out, &log_sum_exp;
  const Tensor *dout = nullptr, *dqkv = nullptr;
};

/// cuDNN's plans of attention for one stream. A plan is made (in up to a second) when its number of documents
/// and length first occur in a call or are prepared, and then kept.
class AttentionPlans {
 public:
  explicit AttentionPlans(int device);
  ~AttentionPlans();
  AttentionPlans(const AttentionPlans&) = delete;
  AttentionPlans& operator=(const AttentionPlans&) = delete;

  /// Gives the work of attention() or attention_backward() to the stream and returns nullopt. If cuDNN
  /// refuses a plan that the call needs, does nothing and returns the reason.
  std::optional<std::string> forward(const KernelCall& call, const AttentionOperands& operands);
  std::optional<std::string> backward(const KernelCall& call, const AttentionOperands& operands);

  /// Makes the plans that a call with these sizes needs, if cuDNN supports it. Returns the number of plans
  /// and refusals made.
  int64_t prepare(const Stream& stream, const AttentionSizes& sizes, Direction direction);
  /// The number of plans and refusals made so far.
  int64_t count() const { return std::ssize(plans_); }

 private:
  enum class Pass : bool { kForward, kBackward };
  /// The plan for `shape`, made on first use. It may be a refusal.
  const Plan& plan(Pass pass, const AttentionShape& shape, int64_t most_workspace_bytes);
  /// Appends the plan of each group of the schedule to `plans`. Returns the reason if one of them is a
  /// refusal or needs too much workspace, else nullopt.
  std::optional<std::string> all_plans(Pass pass, const AttentionSchedule& schedule, AttentionShape shape,
                                       int64_t most_workspace_bytes, std::vector<const Plan*>& plans);
  std::optional<std::string> unsupported(const AttentionSizes& sizes) const;
  void ensure_handle(const Stream& stream);

  int device_;
  AttentionGpu gpu_;
  cudnnHandle_t handle_ = nullptr;  ///< made before the first plan
  std::map<std::pair<Pass, AttentionShape>, Plan> plans_;
};

}  // namespace ripstop::cuda
