// Larger changes that nobody writes before a measurement asks for them: the time of the kernels that each
// would replace, beside the least time that its own would take.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tests/bench/kernel_rows.h"

namespace ripstop {

/// The best rates of the machine.
struct Ceilings {
  double copy_bytes = 0;            ///< bytes read and written per second
  std::map<DType, double> product;  ///< FLOP/s
};

struct Measured {
  KernelRow row;
  double seconds = 0, flops = 0, bytes = 0;
  double floor_seconds = 0;
  double onednn_seconds = 0;  ///< 0: not compared
};

/// One change, in a step with one micro-batch or in one decoded token.
struct Gain {
  std::string name;
  double seconds = 0;        ///< now
  double floor_seconds = 0;  ///< at least, with the change
};

/// One token of one text through a layer with a full cache: all kernels that a CUDA graph would start as one.
KernelRow decoded_layer(const StepShape& shape, DType dtype);

/// `all`: every row of kernel_rows() and decoded_layer(), measured.
std::vector<Gain> gains(const StepShape& shape, DType dtype, const std::vector<Measured>& all,
                        const Ceilings& ceilings);

}  // namespace ripstop
