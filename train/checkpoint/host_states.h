#pragma once
#include <vector>

#include "model/core/function_ref.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/step/training_step.h"

namespace ripstop {

/// Pointers to the master weights and moments of all trained shards in the memory of `model` and `optimizer`.
std::vector<UnitStates> live_states(ShardedTransformer& model, const AdamW& optimizer);

/// Loads `units`, on the device of `stream`, by calls of read(). On a CPU, one call overwrites all units. On
/// a GPU, each call gets one unit in host memory (12 bytes for each parameter of the largest shard, 8 with
/// bfloat16 moments) for a copy to the device; elements that read() does not set become zero. Throws what
/// read() throws.
void load_states(const std::vector<UnitStates>& units, const Stream& stream,
                 FunctionRef<void(const std::vector<UnitStates>&)> read);

}  // namespace ripstop
