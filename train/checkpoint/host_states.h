// The weights and moments of a rank where they are, and how they get there from files.
#pragma once
#include <vector>

#include "model/core/function_ref.h"
#include "train/checkpoint/checkpoint_layout.h"
#include "train/step/training_step.h"

namespace ripstop {

/// Master weights and moments of the shard of every trained unit where they are: the pointers are of the
/// device of the model. Valid as long as `model` and `optimizer`.
std::vector<UnitStates> live_states(ShardedTransformer& model, const AdamW& optimizer);

/// Has `read` overwrite `units`, which are on the device of `stream`. On the CPU it gets all of them. On
/// another device it gets one after the other, in host memory of the largest one (12 bytes for each
/// parameter of its shard, 8 with bfloat16 moments), which is copied to the device; what it leaves out
/// becomes zero. Throws what `read` throws.
void load_states(const std::vector<UnitStates>& units, const Stream& stream,
                 FunctionRef<void(const std::vector<UnitStates>&)> read);

}  // namespace ripstop
