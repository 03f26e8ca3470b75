#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/context.h"
#include "model/parameter.h"
#include "parallel/group_memory.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// Slots of device memory of equal size, which units borrow in turn.
class SlotPool {
 public:
  SlotPool(GroupMemory& memory, MemoryCategory category, int64_t slots, DType dtype, int64_t elements);

  /// Borrows a free slot and returns its first `elements` elements. Throws Error(kBug) if no slot is free.
  Tensor take(int64_t elements);
  /// Throws Error(kBug) if the slot is not borrowed.
  void give_back(const Tensor& slot);

 private:
  std::vector<Tensor> slots_;
  std::vector<bool> taken_;
};

/// Memory, groups and settings that all units of a model share.
struct UnitResources {
  GroupMemory& memory;      ///< source of FsdpUnit::memory_use() bytes for each unit
  const Stream& stream;     ///< stream on which layers compute
  Communicator& gather;     ///< group of the fsdp axis that gathers weights
  Communicator& reduce;     ///< second group of the fsdp axis, which reduces gradients
  Communicator& replicate;  ///< group of the ranks that hold the same shard
  /// Slots for gathered weights in the compute dtype; frozen units have a pool of their own. Null if every
  /// unit keeps its gathered weights, or with one rank on the fsdp axis.
  SlotPool* weight_slots;
  /// Slots for whole float32 gradients. Null without training, or with one rank on the fsdp axis.
  SlotPool* gradient_slots;
  Tensor reduce_scratch;  ///< scratch of the one reduction under way
  SlotPool* sum_slots;    ///< scratch of sums over the replicate axis; null if the sums need no scratch
  DType compute;
  DType travel;  ///< dtype in which gradients are sent
  bool training;
};

/// The parameters of one unit. Between uses this rank has its shard: float32 master weights, a float32
/// gradient and, if the compute dtype is bfloat16, the compute copy; and gathered weights if there are no
/// slots for them. Without training, and in a frozen unit, it has only weights in the compute dtype, and the
/// functions for gradients must not be called. The states of the weights, and of the gradient of one visit:
///
///   sharded --unshard()--> gathering --wait()--> unsharded --reshard()--> sharded
///
///   begin_gradients() --> whole gradient --start_reduce()--> on its way --finish_reduce()--> shard
///
/// After the last start_reduce() of a step, start_sum() and finish_sum() sum the gradient over the replicas.
///
/// The calls for one micro-batch, in order:
///
///   forward    unshard, wait, the layer's forward, reshard
///   backward   unshard, wait, begin_gradients, the layer's backward, reshard, start_reduce, finish_reduce
///
/// To overlap communication with compute, the caller starts to gather a unit early, and finishes a reduction
/// after the next layer. A unit may be visited twice in one pass (tied embeddings) and any number of times in
/// one step (accumulation): the reductions of a step add to the shard. With one rank on the fsdp axis nothing
/// moves: backward adds to the shard's gradient.
/// Source: ZeRO stage 3, arXiv:1910.02054; the schedule is PyTorch FSDP2's.
class FsdpUnit {
 public:
  /// Takes memory_use() bytes of UnitResources::memory. `parameters` are in the order of the unit's tensors;
  /// they and `unit` must outlive this object.
  FsdpUnit(const UnitSpec& unit, std::vector<Parameter*> parameters, int64_t tensor_count,
           int64_t tensor_index, const UnitResources& resources);
  FsdpUnit(FsdpUnit&&) noexcept = default;

  /// Bytes that a unit takes from UnitResources::memory. `keeps_whole`: the unit has memory of its own for
  /// gathered weights, because there are no weight slots.
  static MemoryUse memory_use(const UnitLayout& layout, DType compute, bool training, bool keeps_whole);

  /// Starts to gather the unit's weights in the compute dtype and returns at once. Does nothing unless
  /// sharded. Sends this rank's shard to the fsdp - 1 other ranks; a unit that keeps its gathered weights
  /// sends only in the first call after they were changed.
  void unshard();
  /// Waits for the gather and sets Parameter::value. Throws Error(kBug) if unshard() was not called.
  void wait();
  /// Sets Parameter::value to an empty tensor and returns the unit's weight slot, if it has one, to the pool.
  /// Throws Error(kBug) if the unit is not unsharded.
  void reshard();

  /// Sets Parameter::gradient to memory for whole gradients. Backward adds to gradients of vectors; gradients
  /// of matrices follow Parameter::accumulate.
  void begin_gradients(Context& context);
  /// Starts to sum the whole gradients over the fsdp axis and returns at once. Only one unit's reduction may
  /// be under way, because all units share the scratch. Sends to each of the fsdp - 1 other ranks the
  /// gradient of that rank's shard, in the travel dtype.
  void start_reduce();
  void finish_reduce();  ///< waits for the reduction and gives its slot back

  /// Starts to sum the shard's gradient over the replicate axis and returns at once. Call it after the last
  /// start_reduce() of the step. Borrows one of sum_slots until finish_sum(). Does nothing without replicas.
  void start_sum();
  /// The scratch of start_sum() for a shard of `elements`, and the dtype in which it sends gradients:
  /// `travel`, or float32 for fewer elements than replicas.
  struct SumNeeds {
    DType travel;
    int64_t scratch_bytes;
  };
  static SumNeeds sum_needs(int64_t elements, DType travel, const Communicator& replicate);
  /// Whether start_sum() may be called now: while a reduction is under way, only if its group has an
  /// own_stream(), which the sum then follows.
  bool sum_may_follow() const { return reduces_on() != nullptr; }
  /// Waits for the sum over the replicate axis, if one is under way.
  void finish_sum();
  /// The stream that completes the shard's gradient after start_sum(); null if the host must finish the sum.
  const Stream* completes_on() const {
    return summing_.done() ? reduces_on() : resources_.replicate.own_stream();
  }
  /// Lets the collectives of this unit make progress; never blocks.
  void poll();

  /// Makes the next reduction overwrite the gradient of the shard instead of adding to it.
  void begin_step() { fresh_ = true; }
  /// Tells the unit that master weights or compute copy have changed. Call it after each such change.
  void weights_changed() { stale_ = true; }

  /// Copies `values` to the shard from element `first` on, into master weights and compute copy. Synchronous.
  /// Throws Error(kBug) if the values do not fit.
  void set_shard(int64_t first, std::span<const float> values);
  /// Copies the gathered weights to `other`: the same unit of a model with equal tensor slices and compute
  /// dtype, but an fsdp axis of 1. In stream order. Throws Error(kBug) if this unit is not unsharded or
  /// `other` has several shards.
  void copy_whole_to(FsdpUnit& other) const;

  const UnitLayout& layout() const { return layout_; }
  /// Float32 master weights of the shard. Empty if the unit is not trained and the compute dtype is bfloat16.
  const Tensor& master() const { return master_; }
  /// Float32 gradient of the shard. Empty if the unit is not trained.
  const Tensor& gradient() const { return gradient_; }
  /// Bfloat16 weights of the shard. Empty if the compute dtype is float32: then master weights are gathered.
  const Tensor& compute_copy() const { return copy_; }
  /// The shard in the compute dtype: compute_copy() or, if that is empty, master().
  const Tensor& own_shard() const { return copy_.empty() ? master_ : copy_; }
  /// Index of the shard's first element in the unit's flat buffer.
  int64_t shard_begin() const { return shard_begin_; }
  /// Elements at the start of the shard, padding included, that are the same on all ranks of the tensor axis:
  /// norms, wo's bias, and matrices of adapters that the axis does not cut.
  int64_t replicated_in_shard() const;

 private:
  enum class State { kSharded, kGathering, kUnsharded };
  bool whole_is_shard() const { return resources_.gather.size() == 1; }
  bool is_trained() const { return resources_.training && !layout_.unit().frozen; }
  Tensor part(const Tensor& flat, size_t tensor) const;
  bool is_vector(size_t tensor) const { return layout_.unit().tensors[tensor].parts.front().vector; }
  void zero_unwritten(Context& context, const Tensor& flat) const;
  const Stream* reduces_on() const;

  UnitResources resources_;
  int64_t tensor_count_;
  UnitLayout layout_;
  std::vector<Parameter*> parameters_;
  Tensor master_, gradient_, copy_;
  Tensor own_whole_;  ///< memory for gathered weights if there are no slots
  int64_t shard_begin_ = 0;
  State state_ = State::kSharded;
  Tensor whole_;           ///< the gathered weights, while gathering or unsharded
  Tensor whole_gradient_;  ///< the whole gradient, from begin_gradients() to finish_reduce()
  Tensor sum_scratch_;     ///< scratch while the sum over the replicate axis is under way
  Pending gathering_, reducing_, summing_;
  bool fresh_ = true;  ///< the shard has no gradient of this step yet
  bool stale_ = true;  ///< own_whole_ is older than the weights of the shard
};

}  // namespace ripstop
