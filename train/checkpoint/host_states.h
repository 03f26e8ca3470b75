// HostStates: the weights and moments of a rank in host memory, for checkpoints.
#pragma once
#include <cstddef>
#include <vector>

#include "train/checkpoint/checkpoint_layout.h"
#include "train/step/training_step.h"

namespace ripstop {

/// Master weights and moments of every unit's shard in host memory. On the CPU they are the tensors
/// themselves, on another device copies (12 bytes for each parameter of the shard, 8 with bfloat16 moments),
/// allocated by the constructor. `model`, `optimizer` and `stream` must outlive it.
class HostStates {
 public:
  HostStates(ShardedTransformer& model, const AdamW& optimizer, const Stream& stream);

  /// The arrays on the host; valid as long as this object.
  std::vector<UnitStates> units();
  /// Copies from the device; returns when the copies are complete.
  void to_host();
  /// Overwrites the tensors with the copies, in stream order. Does not wait.
  void to_device();

 private:
  struct State {
    Tensor tensor;
    std::vector<std::byte> copy;  ///< empty if the tensor is on the host
    void* host();
  };
  struct Unit {
    const UnitLayout* layout;
    State master, first, second;
  };
  void each(FunctionRef<void(State&)> body);

  const Stream& stream_;
  std::vector<Unit> units_;
};

}  // namespace ripstop
