// What a layer may use besides its arguments.
#pragma once
#include "model/device/arena.h"
#include "model/device/device.h"

namespace ripstop {

class TensorAxis;

/// The three things every layer and operation gets. Owns nothing; cheap to copy.
struct Context {
  const Stream& stream;
  Arena& arena;
  const TensorAxis& tensor;

  const Device& device() const { return stream.device(); }
};

}  // namespace ripstop
