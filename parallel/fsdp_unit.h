// FsdpUnit: the parameters of one unit, stored as shards and gathered while the unit computes.
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

  /// Takes a free slot and returns its first `elements` elements. Throws Error(kBug) if all slots are taken.
  Tensor take(int64_t elements);
  /// Gives back a slot that take() returned. Throws Error(kBug) if it is not taken.
  void give_back(const Tensor& slot);

 private:
  std::vector<Tensor> slots_;
  std::vector<bool> taken_;
};

/// The memory and the groups that all units of a model share.
struct UnitResources {
  GroupMemory& memory;      ///< every unit takes FsdpUnit::memory_use from it
  const Stream& stream;     ///< the stream that layers compute on
  Communicator& gather;     ///< the fsdp axis, to gather weights
  Communicator& reduce;     ///< the fsdp axis again, to reduce gradients
  Communicator& replicate;  ///< the ranks that hold the same shard
  /// For gathered weights in the compute dtype; frozen units have a pool of their own. Null if every unit
  /// keeps its own whole, or with one rank on the fsdp axis.
  SlotPool* weight_slots;
  /// For whole float32 gradients. Null without training, or with one rank on the fsdp axis.
  SlotPool* gradient_slots;
  Tensor reduce_scratch;  ///< for one reduction at a time
  SlotPool* sum_slots;    ///< scratch of sums over the replicate axis; null if sums need no scratch
  DType compute;
  DType travel;  ///< of gradients while they are sent
  bool training;
};

/// The parameters of one unit. Between uses only this rank's shard exists: float32 master weights, a float32
/// gradient and, if the compute dtype is bfloat16, the compute copy. Without training, and in a frozen unit,
/// the shard is the weights in the compute dtype alone, and the functions for gradients must not be called.
///
/// The weights pass through three states, and the gradient goes from whole to shard:
///
///   sharded --unshard()--> gathering --wait()--> unsharded --reshard()--> sharded
///
///   begin_gradients() --> whole gradient --start_reduce()--> on its way --finish_reduce()--> shard
///
/// After the unit's last reduction of a step, start_sum() and finish_sum() sum the shard over the replicas.
///
/// The calls of one micro-batch, in order:
///
///   forward    unshard, wait, the layer's forward, reshard
///   backward   unshard, wait, begin_gradients, the layer's backward, reshard, start_reduce, finish_reduce
///
/// The caller starts to gather a unit before it needs it, and finishes a reduction after the next layer, so
/// that both overlap with compute. A unit may be visited twice in one pass (tied embeddings) and any number
/// of times in one step (accumulation): the reductions of a step add to the shard. With one rank on the
/// fsdp axis nothing moves: the whole is the shard, and backward adds straight into the shard's gradient.
/// Source: ZeRO stage 3, arXiv:1910.02054; the schedule is PyTorch FSDP2's.
class FsdpUnit {
 public:
  /// Takes the shard's memory. `parameters` are in the order of the unit's tensors. `parameters` and `unit`
  /// must outlive the FsdpUnit.
  FsdpUnit(const UnitSpec& unit, std::vector<Parameter*> parameters, int64_t tensor_count,
           int64_t tensor_index, const UnitResources& resources);
  FsdpUnit(FsdpUnit&&) noexcept = default;

  /// The bytes that a unit takes from UnitResources::memory. `keeps_whole`: the fsdp axis has several ranks,
  /// but there are no weight slots.
  static MemoryUse memory_use(const UnitLayout& layout, DType compute, bool training, bool keeps_whole);

  /// Starts to gather the unit in the compute dtype and returns at once. Does nothing if the unit is not
  /// sharded. Sends this rank's shard to the fsdp - 1 other ranks; a unit that keeps its whole does so only
  /// after weights_changed().
  void unshard();
  /// Waits for the gather and sets Parameter::value. Throws Error(kBug) if `unshard` was not called.
  void wait();
  /// Sets Parameter::value to "no tensor" and gives the slot of the gathered weights back, if there is one.
  /// Throws Error(kBug) if the unit is not unsharded.
  void reshard();

  /// Sets Parameter::gradient to memory for whole gradients. Backward adds to the gradients of vectors, and
  /// writes or adds to the gradients of matrices, as Parameter::accumulate says.
  void begin_gradients(Context& context);
  /// Starts to sum the whole gradients over the fsdp axis and returns at once. Only one unit's reduction may
  /// be under way, because all units share the scratch. Sends the shards of fsdp - 1 other ranks in the
  /// travel dtype.
  void start_reduce();
  /// Waits until the sum is in the shard's gradient.
  void finish_reduce();

  /// Starts to sum the shard's gradient over the replicate axis, after the unit's last reduction of the step,
  /// and returns at once. Takes one of sum_slots until finish_sum. Does nothing without replicas.
  void start_sum();
  /// Whether start_sum may be called between start_reduce and finish_reduce: on a device, whose stream orders
  /// the two sums. On the host it must come after finish_reduce.
  bool sum_may_follow() const { return reduces_on() != nullptr; }
  /// Waits for the sum over the replicate axis, if it has begun.
  void finish_sum();
  /// After start_sum: the stream whose work completes the shard's gradient; null while the host must do so.
  const Stream* completes_on() const;
  /// Lets the collectives of this unit make progress; never blocks.
  void poll();

  /// Begins a step: the next reduction overwrites the shard's gradient.
  void begin_step() { fresh_ = true; }
  /// Call it after the master weights and the compute copy have changed.
  void weights_changed() { stale_ = true; }

  /// Copies `values` from the host into master and compute copy, from element `first` of this rank's shard
  /// on. Synchronous. Throws Error(kBug) if they do not fit into the shard.
  void set_shard(int64_t first, std::span<const float> values);
  /// Copies the gathered weights to the same unit of a model whose fsdp axis is 1, with equal tensor slices
  /// and compute dtype. In stream order. Throws Error(kBug) if this unit is not unsharded or the other does
  /// not hold its whole.
  void copy_whole_to(FsdpUnit& other) const;

  const UnitLayout& layout() const { return layout_; }
  /// The shard's float32 weights [shard_elements]; no tensor if the unit is not trained and the compute dtype
  /// is bfloat16.
  const Tensor& master() const { return master_; }
  /// The shard's float32 gradient; no tensor if the unit is not trained.
  const Tensor& gradient() const { return gradient_; }
  /// The shard's bfloat16 weights, which are gathered; no tensor in compute dtype float32, where the master
  /// is.
  const Tensor& compute_copy() const { return copy_; }
  /// First element of this rank's shard in the unit's flat buffer.
  int64_t shard_begin() const { return shard_begin_; }
  /// The number of leading elements of the shard, padding included, that all ranks of the tensor axis hold
  /// alike: norms, and the adapters' matrices that the axis does not cut.
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
  bool fresh_ = true;  ///< the shard's gradient has nothing of this step yet
  bool stale_ = true;  ///< own_whole_ is older than the shard's weights
};

}  // namespace ripstop
