// A matrix product as a plain user of oneDNN writes it, to compare ripstop's linear layers on CPUs with.
#pragma once
#include "tests/bench/operands.h"

namespace ripstop {

/// c [m, n] = a [m, k] * b [k, n], all row-major and with the operands' dtype. Runs on the CPU in the
/// caller's OpenMP threads. Done when `run` returns.
Work onednn_product(Operands& operands, int64_t m, int64_t k, int64_t n);

}  // namespace ripstop
