#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/ops/kernel_table.h"

namespace ripstop {

/// The instruction sets of this processor that have compiled kernels, best first: some of "avx512_bf16",
/// "x86-64-v4", "x86-64-v3", "generic". Never empty.
std::vector<std::string> cpu_instruction_sets();

/// The first of cpu_instruction_sets(), and oneDNN's version and instruction set. All ranks of a run must
/// have equal texts, because otherwise their results differ in the last bits.
std::string cpu_instruction_set();

/// Whether this is an x86-64 processor that multiplies bfloat16. On others float32 counts as faster.
bool cpu_has_fast_bfloat16();

/// The number of threads of an operation. Workspace sizes depend on it.
int64_t cpu_threads();

/// Sets cpu_threads() for operations of the calling thread, to plan a launch with another number of threads.
void set_cpu_threads(int64_t threads);

/// The kernels compiled for `instruction_set`, for tests and benchmarks. Throws Error(kBug) for a name that
/// is not among cpu_instruction_sets().
const KernelTable& cpu_kernels(std::string_view instruction_set);

}  // namespace ripstop
