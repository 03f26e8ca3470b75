// Context: the stream, the arena and the tensor axis that every layer and operation gets.
#pragma once
#include "model/device/arena.h"
#include "model/device/device.h"

namespace ripstop {

class TensorAxis;

/// All that a layer or an operation may use besides its arguments. Owns nothing; cheap to copy.
struct Context {
  const Stream& stream;
  Arena& arena;
  const TensorAxis& tensor;

  const Device& device() const { return stream.device(); }
};

}  // namespace ripstop
