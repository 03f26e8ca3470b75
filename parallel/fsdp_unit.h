// FsdpUnit: the parameters of one unit, stored as shards, and gathered while the layer of the unit computes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/context.h"
#include "model/parameter.h"
#include "parallel/group_memory.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// Slots of device memory, all of the same size, that units borrow in turn.
class SlotPool {
 public:
  /// Takes `slots` slots of `elements` elements each from `memory`.
  SlotPool(GroupMemory& memory, MemoryCategory category, int64_t slots, DType dtype, int64_t elements);

  /// Borrows a free slot and returns its first `elements` elements. Throws Error(kBug) if no slot is free.
  Tensor take(int64_t elements);
  /// Returns to the pool a slot that take() returned. Throws Error(kBug) if the slot is not borrowed.
  void give_back(const Tensor& slot);

 private:
  std::vector<Tensor> slots_;
  std::vector<bool> taken_;
};

/// The memory and the groups that all units of a model use together.
struct UnitResources {
  GroupMemory& memory;      ///< memory from which each unit takes FsdpUnit::memory_use()
  const Stream& stream;     ///< the stream on which layers compute
  Communicator& gather;     ///< group of the fsdp axis, for gathering weights
  Communicator& reduce;     ///< second group of the fsdp axis, for reducing gradients
  Communicator& replicate;  ///< group of the ranks that hold the same shard
  /// Slots for gathered weights in the compute dtype; frozen units have a pool of their own. Null if every
  /// unit has memory for its own gathered weights, or with one rank on the fsdp axis.
  SlotPool* weight_slots;
  /// Slots for whole float32 gradients. Null without training, or with one rank on the fsdp axis.
  SlotPool* gradient_slots;
  Tensor reduce_scratch;  ///< scratch of the one reduction under way
  SlotPool* sum_slots;    ///< slots for scratch of sums over the replicate axis; null if the sums need none
  DType compute;
  DType travel;  ///< dtype in which gradients are sent
  bool training;
};

/// The parameters of one unit. Between uses only this rank's shard exists: float32 master weights, a float32
/// gradient and, if the compute dtype is bfloat16, the compute copy. Without training, and in a frozen unit,
/// the shard is the weights in the compute dtype alone, and the functions for gradients must not be called.
///
/// The weights pass through three states. The whole gradient of a visit is reduced to the gradient of the
/// shard:
///
///   sharded --unshard()--> gathering --wait()--> unsharded --reshard()--> sharded
///
///   begin_gradients() --> whole gradient --start_reduce()--> on its way --finish_reduce()--> shard
///
/// After the last reduction of a step, start_sum() and finish_sum() sum the gradient of the shard over the
/// replicas.
///
/// The calls for one micro-batch, in order:
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
  /// Takes the memory of the shard. `parameters` are in the order of the unit's tensors. `parameters` and
  /// `unit` must outlive this object.
  FsdpUnit(const UnitSpec& unit, std::vector<Parameter*> parameters, int64_t tensor_count,
           int64_t tensor_index, const UnitResources& resources);
  FsdpUnit(FsdpUnit&&) noexcept = default;

  /// The bytes that a unit takes from UnitResources::memory. `keeps_whole` means that the fsdp axis has
  /// several ranks, but there are no weight slots, so the unit has memory for its gathered weights.
  static MemoryUse memory_use(const UnitLayout& layout, DType compute, bool training, bool keeps_whole);

  /// Starts to gather the unit's weights in the compute dtype and returns at once. Does nothing if the unit
  /// is not in the state sharded. Sends this rank's shard to the fsdp - 1 other ranks; a unit that keeps its
  /// gathered weights sends only in the first call after weights_changed().
  void unshard();
  /// Waits for the gather, then sets Parameter::value to the gathered weights. Throws Error(kBug) if
  /// unshard() was not called.
  void wait();
  /// Sets Parameter::value to an empty tensor. Gives the slot of the gathered weights, if the unit has one,
  /// back to the pool. Throws Error(kBug) if the unit is not unsharded.
  void reshard();

  /// Sets Parameter::gradient to memory for whole gradients. Backward then adds to the gradients of vectors;
  /// it overwrites the gradients of matrices or adds to them, as Parameter::accumulate says.
  void begin_gradients(Context& context);
  /// Starts to sum the whole gradients over the fsdp axis and returns at once. Only one unit's reduction may
  /// be under way, because all units share the scratch. Sends to each of the fsdp - 1 other ranks the
  /// gradient of that rank's shard, in the travel dtype.
  void start_reduce();
  /// Waits until the sum is in the gradient of the shard.
  void finish_reduce();

  /// Starts to sum the shard's gradient over the replicate axis and returns at once. Call it after the last
  /// reduction of the step. Borrows one of sum_slots until finish_sum(). Does nothing without replicas.
  void start_sum();
  /// Whether start_sum() may be called before finish_reduce(). It may on a device, whose stream orders the
  /// two sums; on the host it may not.
  bool sum_may_follow() const { return reduces_on() != nullptr; }
  /// Waits for the sum over the replicate axis, if one is under way.
  void finish_sum();
  /// The stream whose work completes the shard's gradient, after start_sum(). Null if the host must still
  /// finish the sum.
  const Stream* completes_on() const;
  /// Lets the collectives of this unit make progress; never blocks.
  void poll();

  /// Begins a step: the next reduction overwrites the gradient of the shard instead of adding to it.
  void begin_step() { fresh_ = true; }
  /// Tells the unit that its master weights and compute copy have changed. Must be called after each such
  /// change.
  void weights_changed() { stale_ = true; }

  /// Copies `values` from the host to the shard of this rank, into master weights and compute copy, from
  /// element `first` of the shard on. Synchronous. Throws Error(kBug) if they do not fit into the shard.
  void set_shard(int64_t first, std::span<const float> values);
  /// Copies the gathered weights to `other`: the same unit of a model with equal tensor slices and compute
  /// dtype, but one rank on its fsdp axis. In stream order. Throws Error(kBug) if this unit is not unsharded
  /// or `other` does not hold its whole weights.
  void copy_whole_to(FsdpUnit& other) const;

  const UnitLayout& layout() const { return layout_; }
  /// The float32 master weights of the shard [shard_elements]. Empty if the unit is not trained and the
  /// compute dtype is bfloat16.
  const Tensor& master() const { return master_; }
  /// The float32 gradient of the shard. Empty if the unit is not trained.
  const Tensor& gradient() const { return gradient_; }
  /// The bfloat16 weights of the shard, which are gathered. Empty if the compute dtype is float32: then the
  /// master weights are gathered.
  const Tensor& compute_copy() const { return copy_; }
  /// Index of the shard's first element in the flat buffer of the unit.
  int64_t shard_begin() const { return shard_begin_; }
  /// The number of elements at the start of the shard, padding included, that are the same on all ranks of
  /// the tensor axis: norms, and those matrices of adapters that the axis does not cut.
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
  Tensor own_whole_;  ///< memory for gathered weights if there are no slots; reshard() does not clear it
  int64_t shard_begin_ = 0;
  State state_ = State::kSharded;
  Tensor whole_;           ///< the gathered weights, while gathering or unsharded
  Tensor whole_gradient_;  ///< the whole gradient, from begin_gradients() to finish_reduce()
  Tensor sum_scratch_;     ///< scratch while the sum over the replicate axis is under way
  Pending gathering_, reducing_, summing_;
  bool fresh_ = true;  ///< no gradient of this step is in the shard yet
  bool stale_ = true;  ///< own_whole_ is older than the weights of the shard
};

}  // namespace ripstop
