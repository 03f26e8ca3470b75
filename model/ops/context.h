// Context: the stream, the arena and the tensor axis that every layer and operation gets.
#pragma once
#include <cstdint>

#include "model/device/arena.h"
#include "model/device/device.h"

namespace ripstop {

class TensorAxis;

/// The place of dropout's random bits beside the element: where the rows of a micro-batch are in training.
/// Sequence s of the micro-batch is number first_sequence + s * sequence_step of the step, of all data ranks
/// together.
struct DropoutPlace {
  uint64_t seed = 0;
  int64_t step = 0;  ///< the number of its update
  int64_t first_sequence = 0, sequence_step = 1;
  int64_t sequence_length = 1;
};

/// All that a layer or an operation may use besides its arguments. Owns nothing; cheap to copy.
struct Context {
  const Stream& stream;
  Arena& arena;
  const TensorAxis& tensor;
  const DropoutPlace* dropout = nullptr;  ///< of a training pass; null: nothing is dropped

  const Device& device() const { return stream.device(); }
};

}  // namespace ripstop
