// FsdpUnit: the parameters of one unit, kept as a range and made whole while the unit computes.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/context.h"
#include "model/parameter.h"
#include "parallel/group_memory.h"
#include "parallel/unit_layout.h"

namespace ripstop {

/// Equal pieces of device memory that units borrow in turn.
class SlotPool {
 public:
  /// `slots` slots of `elements` elements each, taken from `memory`.
  SlotPool(GroupMemory& memory, MemoryCategory category, int64_t slots, DType dtype, int64_t elements);

  /// A free slot, as `elements` of its beginning. Throws Error(kBug) where all are taken: the schedule is
  /// wrong.
  Tensor take(int64_t elements);
  void give_back(const Tensor& slot);

 private:
  std::vector<Tensor> slots_;
  std::vector<bool> taken_;
};

/// What all units of a model share.
struct UnitResources {
  GroupMemory& memory;      ///< of which every unit takes memory_use
  const Stream& stream;     ///< compute
  Communicator& gather;     ///< the fsdp axis, for unsharding
  Communicator& reduce;     ///< the fsdp axis again, for gradients
  Communicator& replicate;  ///< ranks that hold the same range
  SlotPool* weight_slots;   ///< whole units in the compute dtype; null where every unit keeps its own
  /// Whole float32 gradients; null without training or with one rank on the fsdp axis.
  SlotPool* gradient_slots;
  Tensor reduce_scratch;  ///< for one reduction at a time
  DType compute;
  DType travel;  ///< of gradients
  bool training;
};

/// The parameters of one unit. Between uses only this rank's range exists: float32 master weights, a float32
/// gradient, and, where the compute dtype is bfloat16, a copy in it. Without training: the weights in the
/// compute dtype alone.
///
/// Life in a micro-batch:
///   forward    unshard -> wait -> forward -> reshard
///   backward   unshard -> wait -> begin_gradients -> backward -> reshard -> start_reduce -> finish_reduce
///
/// Reductions always add to the shard, so a unit may be visited twice in one pass (tied embeddings) and any
/// number of times in one step (accumulation). With one rank on the fsdp axis nothing moves: the whole is the
/// shard, and backward adds straight into the gradient. Source: ZeRO stage 3, arXiv:1910.02054; the schedule
/// is PyTorch FSDP2's.
class FsdpUnit {
 public:
  /// `parameters` in the order of the unit's tensors; `unit` and they must outlive this.
  FsdpUnit(const UnitSpec& unit, std::vector<Parameter*> parameters, int64_t tensor_count,
           int64_t tensor_index, const UnitResources& resources);
  FsdpUnit(FsdpUnit&&) noexcept = default;

  /// What a unit takes of UnitResources::memory. `keeps_whole`: there are no weight slots, and the fsdp axis
  /// has more than one rank.
  static MemoryUse memory_use(const UnitLayout& layout, DType compute, bool training, bool keeps_whole);

  /// Starts to gather the unit in the compute dtype. Returns at once; nothing happens where it is gathered
  /// already. Sends (fsdp - 1) ranges.
  void unshard();
  /// From here on Parameter::value is valid. `unshard` must have been called.
  void wait();
  /// Gives the memory back; Parameter::value is "no tensor" again.
  void reshard();

  /// Gives the parameters memory for whole gradients. Every parameter that backward does not write counts as
  /// zero.
  void begin_gradients(Context& context);
  /// Starts to sum the whole gradients over the fsdp axis. Only one unit's reduction may be under way.
  void start_reduce();
  /// Adds the sum to the range. `last`: the step's last reduction of this unit, so that the range is then
  /// summed over the replicate axis; scratch for that comes from the context's arena.
  void finish_reduce(Context& context, bool last);

  /// Forgets the gradients: the next reduction overwrites the range.
  void begin_step() { fresh_ = true; }
  /// Must be called after the master weights (and the copy) have changed.
  void weights_changed() { stale_ = true; }

  /// Overwrites the elements from `first` on of this rank's range, master and copy, with `values` of the
  /// host. Returns when they have been read.
  void set_shard(int64_t first, std::span<const float> values);
  /// Copies the gathered weights into the same unit of a model whose fsdp axis is 1, with equal tensor slices
  /// and compute dtype. In stream order; between wait and reshard.
  void copy_whole_to(FsdpUnit& other) const;

  const UnitLayout& layout() const { return layout_; }
  /// This rank's range, [shard_elements] each: float32 weights (no tensor without training in bfloat16),
  /// their gradient (no tensor without training), and what is gathered: the bfloat16 copy, or no tensor where
  /// that is the master itself.
  const Tensor& master() const { return master_; }
  const Tensor& gradient() const { return gradient_; }
  const Tensor& compute_copy() const { return copy_; }
  /// First element of this rank's range in the unit's flat buffer.
  int64_t shard_begin() const { return shard_begin_; }
  /// Elements at the beginning of the range that the ranks of the tensor axis hold alike.
  int64_t replicated_in_shard() const;

 private:
  enum class State { kSharded, kGathering, kUnsharded };
  const Tensor& own_shard() const { return copy_.empty() ? master_ : copy_; }
  bool whole_is_shard() const { return resources_.gather.size() == 1; }
  Tensor part(const Tensor& flat, size_t tensor) const;
  void zero_unwritten(Context& context, const Tensor& flat) const;

  UnitResources resources_;
  int64_t tensor_count_;
  UnitLayout layout_;
  std::vector<Parameter*> parameters_;
  Tensor master_, gradient_, copy_;
  Tensor own_whole_;  ///< the gathered weights, where they have a place of their own
  int64_t shard_begin_ = 0;
  State state_ = State::kSharded;
  Tensor whole_;           ///< while gathering or unsharded
  Tensor whole_gradient_;  ///< from begin_gradients to finish_reduce
  Pending gathering_, reducing_;
  bool fresh_ = true;  ///< no reduction of this step has reached the range yet
  bool stale_ = true;  ///< own_whole_ is older than the master weights
};

}  // namespace ripstop
