// FsdpUnit: the parameters of one unit, stored as a shard and gathered while the unit computes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/context.h"
#include "model/parameter.h"
#include "parallel/group_memory.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// Slots of device memory of equal size that units borrow in turn.
class SlotPool {
 public:
  /// `slots` slots of `elements` elements each, taken from `memory`.
  SlotPool(GroupMemory& memory, MemoryCategory category, int64_t slots, DType dtype, int64_t elements);

  /// Takes a free slot and returns its first `elements` elements. Throws Error(kBug) if all slots are taken,
  /// because then the schedule is wrong.
  Tensor take(int64_t elements);
  /// Gives back a slot that take() returned. Throws Error(kBug) if it is not taken.
  void give_back(const Tensor& slot);

 private:
  std::vector<Tensor> slots_;
  std::vector<bool> taken_;
};

/// The memory and the groups that all units of a model share.
struct UnitResources {
  GroupMemory& memory;      ///< every unit takes FsdpUnit::memory_use of it
  const Stream& stream;     ///< the stream that layers compute on
  Communicator& gather;     ///< the fsdp axis, for unsharding
  Communicator& reduce;     ///< the fsdp axis again, for gradients
  Communicator& replicate;  ///< the ranks that hold the same shard
  /// For gathered weights in the compute dtype, of frozen units or of the others. Null if every unit keeps
  /// its own whole, or with one rank on the fsdp axis.
  SlotPool* weight_slots;
  /// For whole float32 gradients. Null without training, or with one rank on the fsdp axis.
  SlotPool* gradient_slots;
  Tensor reduce_scratch;  ///< for one reduction at a time
  SlotPool* sum_slots;    ///< scratch of sums over the replicate axis; null if they need none
  DType compute;
  DType travel;  ///< in which gradients are sent
  bool training;
};

/// The parameters of one unit. Between uses only this rank's shard exists: float32 master weights, a float32
/// gradient and, if the compute dtype is bfloat16, the compute copy. Without training, and of a frozen unit:
/// the weights in the compute dtype alone, and none of the functions that are about gradients may be called.
///
/// The weights pass through three states, and the gradient goes from whole to shard:
///
///   sharded --unshard()--> gathering --wait()--> unsharded --reshard()--> sharded
///
///   begin_gradients() --> whole gradient --start_reduce()--> on its way --finish_reduce()--> shard
///
/// After the step's last reduction of a unit its shard is summed over the replicas, which `finish_sum` ends.
///
/// The calls of one micro-batch, in order:
///
///   forward    unshard, wait, the layer's forward, reshard
///   backward   unshard, wait, begin_gradients, the layer's backward, reshard, start_reduce, finish_reduce
///
/// The caller starts to gather a unit before it needs it, and finishes a reduction after the next layer, so
/// that both overlap with compute. A unit may be visited twice in one pass (tied embeddings) and any number
/// of times in one step (accumulation), because reductions of a step add to the shard. With one rank on the
/// fsdp axis nothing moves: the whole is the shard, and backward adds straight into the shard's gradient.
/// Source: ZeRO stage 3, arXiv:1910.02054; the schedule is PyTorch FSDP2's.
class FsdpUnit {
 public:
  /// Takes the shard's memory. `parameters` are in the order of the unit's tensors; they and `unit` must
  /// outlive this.
  FsdpUnit(const UnitSpec& unit, std::vector<Parameter*> parameters, int64_t tensor_count,
           int64_t tensor_index, const UnitResources& resources);
  FsdpUnit(FsdpUnit&&) noexcept = default;

  /// The bytes that a unit takes of UnitResources::memory. `keeps_whole`: there are no weight slots although
  /// the fsdp axis has more than one rank.
  static MemoryUse memory_use(const UnitLayout& layout, DType compute, bool training, bool keeps_whole);

  /// Starts to gather the unit in the compute dtype and returns at once. Does nothing if the unit is not
  /// sharded. Sends this rank's shard to the fsdp - 1 other ranks. A unit that keeps its whole sends only
  /// changed weights.
  void unshard();
  /// Waits for the gather and sets Parameter::value. Throws Error(kBug) if `unshard` was not called.
  void wait();
  /// Sets Parameter::value to "no tensor" and gives the slot of the gathered weights back. A unit that keeps
  /// its whole keeps the weights too. Throws Error(kBug) if the unit is not unsharded.
  void reshard();

  /// Sets Parameter::gradient to memory for whole gradients. A vector's gradient begins at zero and is added
  /// to; a matrix's is written, or added to, as Parameter::accumulate says.
  void begin_gradients(Context& context);
  /// Starts to sum the whole gradients over the fsdp axis, and returns at once. Only one unit's reduction may
  /// be under way, because all share one scratch. Sends shards of (fsdp - 1) other ranks in the travel dtype.
  void start_reduce();
  /// Waits for the sum, which is then in the shard's gradient.
  void finish_reduce();

  /// Starts to sum the shard's gradient over the replicate axis, after the unit's last reduction of the step,
  /// and returns at once. Takes one of sum_slots until finish_sum. Does nothing without replicas.
  void start_sum();
  /// Whether start_sum may follow start_reduce at once, because a device then does one behind the other. Else
  /// it may follow finish_reduce.
  bool sum_may_follow() const { return reduces_on() != nullptr; }
  /// Waits for that sum, if it has begun.
  void finish_sum();
  /// The stream whose work completes the shard's gradient, once start_sum was called: whoever waits for it
  /// may read the gradient. Null while the host must finish the sum.
  const Stream* completes_on() const;
  /// Lets the collectives of this unit make progress; never blocks.
  void poll();

  /// Begins a step: the next reduction overwrites the shard's gradient.
  void begin_step() { fresh_ = true; }
  /// Must be called after the master weights (and the compute copy) have changed.
  void weights_changed() { stale_ = true; }

  /// Copies `values` from the host into master and compute copy, from element `first` of this rank's shard
  /// on. Returns when the copy is done. Throws Error(kBug) if they do not fit into the shard.
  void set_shard(int64_t first, std::span<const float> values);
  /// Copies the gathered weights to the same unit of a model whose fsdp axis is 1, with equal tensor slices
  /// and compute dtype. In stream order. Throws Error(kBug) if this unit is not unsharded or the other does
  /// not hold its whole.
  void copy_whole_to(FsdpUnit& other) const;

  const UnitLayout& layout() const { return layout_; }
  /// This rank's shard, [shard_elements] each. Float32 weights; no tensor without training if the compute
  /// dtype is bfloat16.
  const Tensor& master() const { return master_; }
  /// Their float32 gradient; no tensor without training.
  const Tensor& gradient() const { return gradient_; }
  /// Their bfloat16 copy, which is gathered; no tensor if the compute dtype is float32, because then the
  /// master is gathered.
  const Tensor& compute_copy() const { return copy_; }
  /// First element of this rank's shard in the unit's flat buffer.
  int64_t shard_begin() const { return shard_begin_; }
  /// Leading elements of the shard that all ranks of the tensor axis hold alike, with their padding: norms,
  /// and those matrices of adapters that the axis does not cut.
  int64_t replicated_in_shard() const;

 private:
  enum class State { kSharded, kGathering, kUnsharded };
  const Tensor& own_shard() const { return copy_.empty() ? master_ : copy_; }
  bool whole_is_shard() const { return resources_.gather.size() == 1; }
  bool is_trained() const { return resources_.training && !layout_.unit().frozen; }
  Tensor part(const Tensor& flat, size_t tensor) const;
  bool is_vector(size_t tensor) const;
  void zero_unwritten(Context& context, const Tensor& flat) const;
  const Stream* reduces_on() const;

  UnitResources resources_;
  int64_t tensor_count_;
  UnitLayout layout_;
  std::vector<Parameter*> parameters_;
  Tensor master_, gradient_, copy_;
  Tensor own_whole_;  ///< memory for the gathered weights if there are no slots; keeps them after reshard
  int64_t shard_begin_ = 0;
  State state_ = State::kSharded;
  Tensor whole_;           ///< while gathering or unsharded
  Tensor whole_gradient_;  ///< from begin_gradients to finish_reduce
  Tensor sum_scratch_;     ///< while the sum over the replicate axis is under way
  Pending gathering_, reducing_, summing_;
  bool fresh_ = true;  ///< no reduction of this step has reached the shard yet
  bool stale_ = true;  ///< own_whole_ is older than the shard's weights
};

}  // namespace ripstop
