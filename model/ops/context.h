#pragma once
#include <cstdint>

#include "model/device/arena.h"
#include "model/device/device.h"

namespace ripstop {

class TensorAxis;

/// The place of a micro-batch in training, from which dropout takes its random bits. Sequence s of the
/// micro-batch is number first_sequence + s * sequence_step among the step's sequences of all data ranks.
struct DropoutPlace {
  uint64_t seed = 0;
  int64_t step = 0;  ///< number of the step, from 1
  int64_t first_sequence = 0, sequence_step = 1;
  int64_t sequence_length = 1;  ///< T of the micro-batch
};

/// Resources that layers and operations get besides their arguments. Owns nothing; cheap to copy.
struct Context {
  const Stream& stream;
  Arena& arena;
  const TensorAxis& tensor;
  const DropoutPlace* dropout = nullptr;  ///< null outside of training, where nothing is dropped

  const Device& device() const { return stream.device(); }
};

}  // namespace ripstop
