// HostStates: what a checkpoint keeps of a rank, where files are read and written.
#pragma once
#include <vector>

#include "train/checkpoint/checkpoint_layout.h"
#include "train/step/training_step.h"

namespace ripstop {

/// Master weights and moments of every unit's range in host memory: on the CPU the tensors themselves, on
/// another device copies (12 bytes a parameter of the range), which exist from here on. `model`, `optimizer`
/// and `stream` must outlive it.
class HostStates {
 public:
  HostStates(ShardedTransformer& model, const AdamW& optimizer, const Stream& stream);

  /// Where they lie on the host; valid as long as this.
  std::vector<UnitStates> units();
  /// Brings the copies up to date. Returns when they are.
  void to_host();
  /// Overwrites the tensors with the copies, in stream order.
  void to_device();

 private:
  struct State {
    Tensor tensor;
    std::vector<float> copy;  ///< empty where the tensor lies on the host
    float* host();
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
