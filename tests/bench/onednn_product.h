// A product of two matrices as a plain user of oneDNN has it: what ripstop's linear layers on CPUs are
// compared with.
#pragma once
#include "tests/bench/operands.h"

namespace ripstop {

/// c [m, n] = a [m, k] * b [k, n], all row-major and of the operands' dtype; runs on the CPU in the caller's
/// OpenMP threads and is done when `run` returns.
Work onednn_product(Operands& operands, int64_t m, int64_t k, int64_t n);

}  // namespace ripstop
