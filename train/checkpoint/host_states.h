// The weights and moments in a rank's memory, and loading them from files.
#pragma once
#include <vector>

#include "model/core/function_ref.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/step/training_step.h"

namespace ripstop {

/// The master weights and moments of the shard of every trained unit: pointers into the memory of `model` and
/// `optimizer`, on their device, valid as long as both.
std::vector<UnitStates> live_states(ShardedTransformer& model, const AdamW& optimizer);

/// Loads `units`, which are on the device of `stream`, by calls of read(). On a CPU, read() gets all units at
/// once and overwrites them. On a GPU, it gets one unit after the other in host memory (12 bytes for each
/// parameter of the largest shard, 8 with bfloat16 moments), which is then copied to the device; elements
/// that read() does not set become zero. Throws what read() throws.
void load_states(const std::vector<UnitStates>& units, const Stream& stream,
                 FunctionRef<void(const std::vector<UnitStates>&)> read);

}  // namespace ripstop
